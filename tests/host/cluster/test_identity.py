import subprocess
import sys
from typing import Any

import pytest

from perdure.core.ids import HostId
from perdure.host.cluster import identity
from perdure.host.cluster.identity import is_dead, new_host, retire

MAKE = "from perdure.host.cluster.identity import new_host; print(new_host())"


def host_of_another_process() -> HostId:
    done = subprocess.run([sys.executable, "-c", MAKE], capture_output=True, text=True, check=True)
    return HostId(done.stdout.strip())


def test_host_lives_until_it_retires() -> None:
    host = new_host()
    assert not is_dead(host)
    retire(host)
    assert is_dead(host)


def test_hosts_of_one_process_have_separate_lives() -> None:
    first, second = new_host(), new_host()
    retire(first)
    assert is_dead(first)
    assert not is_dead(second)


def test_host_of_a_process_that_ended_is_dead() -> None:
    assert is_dead(host_of_another_process())


def test_host_of_a_process_that_lives_is_not_dead() -> None:
    code = MAKE.replace("print(new_host())", "print(new_host(), flush=True); input()")
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        host = HostId(process.stdout.readline().strip())
        assert not is_dead(host)
        process.communicate("\n")
    assert is_dead(host)


@pytest.mark.parametrize(
    ("elsewhere", "dead"),
    [({"machine": "0"}, False), ({"boot": "0"}, True), ({"namespace": "0"}, False)],
)
def test_elsewhere_only_a_host_of_an_earlier_boot_is_dead(
    elsewhere: dict[str, Any], dead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = identity._here()._replace(**elsewhere)
    monkeypatch.setattr(identity, "_here", lambda: parts)
    there = new_host()
    monkeypatch.undo()
    assert is_dead(there) is dead


@pytest.mark.parametrize("name", ["", "host-1", "h_a_b_c", "h_a_b_c_d_e_f"])
def test_host_with_an_unknown_form_of_id_is_not_dead(name: str) -> None:
    assert not is_dead(HostId(name))

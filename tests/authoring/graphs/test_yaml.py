import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.authoring.graphs import yaml_values as tree
from perdure.authoring.graphs.builder import GraphBuilder
from perdure.authoring.graphs.node_syntax import NODE_SYNTAX
from perdure.authoring.graphs.yaml import load_graph, read_graphs
from perdure.core.errors import GraphInvalid, InputError
from perdure.core.graph import model as m
from perdure.core.graph.checking import problems_of
from perdure.core.graph.drawing import text
from perdure.core.limits import MAX_EXPRESSION_BITS

ORDER = """\
graph: order
version: "1"
input: {order_id: str, amount: float, note: {type: str, default: ""}}
output: {receipt: str}
activities:
  start: trigger
  charge:
    worker: charge_by_hand
    input: {order: order_id, amount: amount}
    output: {receipt: result.id}
    retry: {attempts: 3}
    timeout: 30
  approval: {hook: approved, key: order_id, timeout: 3600}
  refund: {worker: refund_by_hand, input: {why: "'nobody approved it'"}}
  done: {output: {receipt: receipt}}
transitions:
  - start -> charge -> approval
  - {from: approval, to: done, when: result}
  - {from: approval, to: refund, on: timeout}
  - {from: charge, to: refund, on: error, errors: [ValueError], bind: problem}
"""

EVERYTHING = """\
graph: everything
input: {orders: list, customer: str}
activities:
  start: {trigger: , keys: {customer: customer}, job: {seen: 0}, emit: "'begun'", persist: true}
  again: {hook: , cycle: true, job: {seen: job.seen + 1}}
  each: {spread: orders, item: order, index: number}
  charge: {worker: charge_them, input: {order: order}, output: {paid: result}, pending: false}
  all: {aggregate: each, collect: "{'order': order, 'paid': paid}", into: receipts, job: {n: len(receipts)}}
  set: {assign: {first: "receipts[0]", second: first}, job: {first: first}}
  way: branch
  child: {await: audit, input: {receipts: receipts}, wait: false, output: {}}
  pause: {sleep: 0.5}
  answer: {hook: answered, output: {said: result}, pending: true}
  tell: {signal: told, all: customer, key: customer, data: [1, "said"], scrub: true, code: 202}
  stop_other: {interrupt: said, reason: "'no'", throw: false, code: 499, descend: true}
  price: {call: pricing, input: {n: 1}, output: {cost: result}}
  turn: {cycle: again, input: {orders: "orders[1:]"}}
  stop: interrupt
  oops: {raise: ValueError, message: "'none'"}
  result_of_all: {output: {cost: cost, flag: true, none: null, list: [1, 2.5]}}
transitions:
  - start -> again -> each -> charge -> all -> set -> way
  - {from: way, to: turn, when: len(orders) > 1}
  - {from: way, to: oops, when: not receipts}
  - {from: way, to: child}
  - {from: oops, to: stop, on: error, errors: [ValueError, "lib.errors:Bad"], bind: problem}
  - child -> pause -> answer
  - {from: answer, to: [tell, stop_other], on: 200}
  - {from: [tell, stop_other], to: price}
  - price -> result_of_all
"""


def refused(text: str) -> list[str]:
    with pytest.raises(GraphInvalid) as caught:
        load_graph(text)
    return [str(problem).removeprefix("<text>:") for problem in caught.value.problems]


def recorded() -> list[tuple[str, str, list[str]]]:
    """The cases of problems.txt: title, document, and expected problems."""
    text = (Path(__file__).parent / "problems.txt").read_text()
    found = []
    for part in text.split("\n== ")[1:]:
        name, _, rest = part.partition("\n")
        document, _, said = rest.partition("--\n")
        while not said[:1].isdigit():  # the document itself has a line of dashes
            more, _, said = said.partition("--\n")
            document += f"--\n{more}"
        found.append((name, document, said.strip().split("\n")))
    return found


@pytest.mark.parametrize(
    ("document", "said"), [case[1:] for case in recorded()], ids=[case[0] for case in recorded()]
)
def test_problem_has_line_and_column(document: str, said: list[str]) -> None:
    assert refused(document) == said


def test_a_graph_is_read() -> None:
    graph = load_graph(ORDER)
    nodes = {node.name: node for node in graph.nodes}
    assert (graph.name, graph.version, graph.source) == ("order", "1", "<text>:1:1")
    assert graph.input == {
        "order_id": m.FieldType("str"),
        "amount": m.FieldType("float"),
        "note": m.FieldType("str", required=False, default=""),
    }
    assert nodes["charge"] == m.WorkerNode(
        name="charge",
        task="charge_by_hand",
        input={"order": "order_id", "amount": "amount"},
        output={"receipt": "result.id"},
        retry=m.RetryRule(attempts=3),
        timeout=30.0,
    )
    assert nodes["approval"] == m.HookNode(
        name="approval", topic="approved", key="order_id", sleep="3600"
    )
    assert nodes["done"] == m.OutputNode(name="done", value="{'receipt': (receipt)}")
    assert graph.edges == (
        m.Edge("start", "charge"),
        m.Edge("charge", "approval"),
        m.Edge("approval", "done", when="result"),
        m.Edge("approval", "refund", on="timeout"),
        m.Edge("charge", "refund", on="error", errors=("ValueError",), bind="problem"),
    )


def test_every_kind_can_be_written() -> None:
    graph = load_graph(EVERYTHING)
    assert {type(node) for node in graph.nodes} == {kind.node for kind in NODE_SYNTAX.values()}
    nodes = {node.name: node for node in graph.nodes}
    assert nodes["tell"] == m.SignalNode(
        name="tell",
        topic="told",
        all="customer",
        key="customer",
        data="[(1), (said)]",
        scrub=True,
        code=202,
    )
    assert nodes["stop_other"] == m.InterruptNode(
        name="stop_other", target="said", reason="'no'", throw=False, code=499, descend=True
    )
    assert nodes["pause"] == m.HookNode(name="pause", sleep="0.5")
    assert nodes["again"] == m.HookNode(name="again", cycle=True, job={"seen": "job.seen + 1"})
    assert m.Edge("answer", "stop_other", on="200") in graph.edges
    assert m.Edge("tell", "price") in graph.edges


def test_every_field_of_the_model_can_be_written() -> None:
    for kind in {each.node for each in NODE_SYNTAX.values()}:
        ways = [each for each in NODE_SYNTAX.values() if each.node is kind]
        written = {field for each in ways for field, _ in each.fields.values()}
        written |= {each.main for each in ways if each.main is not None}
        written |= {f"{each.main}_from" for each in ways if each.reads == "name"}
        assert set(kind.__struct_fields__) - {"name"} == written, kind


def test_many_problems_are_reported_in_line_order() -> None:
    text = ORDER.replace("order: order_id", "order: ordre_id").replace(
        "timeout: 30\n", "timeout: 0\n"
    )
    text = text.replace("-> approval", "-> aproval").replace("on: timeout", "on: nap")
    assert refused(text) == [
        "9:20: charge.input.order: there is no variable 'ordre_id'; did you mean 'order_id'?",
        "12:14: charge.timeout: 0.0 seconds; use a finite number above 0",
        "13:3: approval: no path leads here from the trigger; add an edge, or remove the node",
        "17:24: edge 1: there is no node 'aproval'; did you mean 'approval'?",
        "19:38: edge 3.on: nothing ends with 'nap'; "
        "use 'done' or 'error' or 'timeout' or a code of three digits",
    ]


def test_unreadable_parts_do_not_hide_other_problems() -> None:
    text = ORDER.replace("hook: approved", "hok: approved").replace(
        "timeout: 30\n", "timeout: soon\n"
    )
    text = text.replace("{output: {receipt: receipt}}", "{output: 'receipt +'}")
    assert refused(text.replace("errors: [ValueError]", "errors: [a b]")) == [
        "12:14: charge.timeout: this is a text; write a number of seconds",
        "13:13: approval: the kind of activity is missing; did you mean 'hook'?",
        "15:18: done.output: this is no Python (invalid syntax); "
        "write one expression, which has a value",
        "20:51: edge 4.errors: 'a b' is no name of an error; "
        "write 'module:Name', or 'Name' for one of Python's own",
    ]


def test_a_control_character_is_located() -> None:
    assert refused("graph: a\nversion: b\x07\n")[0].startswith(
        "2:11: this is not valid YAML (special"
    )


def test_a_name_that_is_too_long_is_refused() -> None:
    text = f"graph: a\nactivities:\n  w: {{worker: {'x' * 256}}}\n"
    assert refused(text) == [
        "3:15: w.worker: the task of 256 bytes ('xxxxxxxxxxxxxxxxxxxx'...); use at most 255"
    ]


def test_on_yes_and_no_are_texts() -> None:
    graph = load_graph(
        "graph: on\nactivities: {yes: {worker: no}, off: branch, n: {worker: 'y'}}\n"
        "transitions: [yes -> off -> n]\n"
    )
    assert (graph.name, graph.nodes[1]) == ("on", m.WorkerNode(name="yes", task="no"))


def output_of(written: str) -> m.AnyNode:
    """The output of a graph, written so."""
    return load_graph(f"graph: a\nactivities:\n  o:\n    output: {written}\n").nodes[1]


def test_folded_text_follows_yaml_rules() -> None:
    folded = ">-\n      'a long text\n      that is folded,\n      twice'"
    assert output_of(folded) == m.OutputNode(name="o", value="'a long text that is folded, twice'")
    assert output_of(">-\n      [1,\n\n      2]") == m.OutputNode(name="o", value="[1,\n2]")
    assert output_of(">\n      [1,\n      2]") == m.OutputNode(name="o", value="[1, 2]\n")
    assert output_of("\"'\\a'\"") == m.OutputNode(name="o", value="'\a'")


@pytest.mark.parametrize("digits", [20, 21, 30, 310, tree.MAX_DIGITS])
@pytest.mark.parametrize("sign", ["", "-"])
def test_a_whole_number_stays_exact(sign: str, digits: int) -> None:
    number = sign + "123456789" * (digits // 9) + "9" * (digits % 9)
    assert output_of(number) == m.OutputNode(name="o", value=number)
    graph = load_graph(
        f"graph: a\ninput: {{n: {{type: int, default: {number}}}}}\nactivities: {{s: trigger}}\n"
    )
    assert graph.input == {"n": m.FieldType("int", required=False, default=int(number))}


@pytest.mark.parametrize("digits", [tree.MAX_DIGITS + 1, 5_000])
def test_a_whole_number_that_is_too_long_is_refused(digits: int) -> None:
    number = "9" * digits
    text = (
        f"graph: a\ninput: {{n: {{type: int, default: {number}}}}}\n"
        f"activities:\n  o: {{output: [-{number}]}}\n  w: {{worker: t, timeout: {number}}}\n"
    )
    expected = f"the number has {digits:,} digits; use at most 1,233"
    assert refused(text) == [f"2:33: {expected}", f"4:16: {expected}", f"5:27: {expected}"]


def test_as_many_digits_as_fit_are_read() -> None:
    assert (10**tree.MAX_DIGITS - 1).bit_length() <= MAX_EXPRESSION_BITS
    assert (10 ** (tree.MAX_DIGITS + 1) - 1).bit_length() > MAX_EXPRESSION_BITS


def test_an_alias_is_replaced_by_its_value() -> None:
    graph = load_graph(
        "graph: a\nactivities:\n  v: {worker: t, retry: &twice {attempts: 2}}\n"
        "  w: {worker: t, retry: *twice}\n"
    )
    assert graph.nodes[2] == m.WorkerNode(name="w", task="t", retry=m.RetryRule(attempts=2))


def test_aliases_of_aliases_are_bounded() -> None:
    lines = ["graph: a", "activities:", "  a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [
        f"  a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 15)
    ]
    assert refused("\n".join(lines)) == [
        "6:7: there are more than 50,000 values, those counted that aliases repeat; write less"
    ]


def test_an_anchor_that_contains_itself_is_refused() -> None:
    said = refused("graph: a\nactivities: &x\n  w: {worker: t, input: {a: *x}}\n")
    assert said == ["3:29: there is nothing that &x names before; write it out"]


def test_nesting_is_bounded() -> None:
    assert refused("graph: " + "[" * 5000) == [
        "1:27: this is nested more than 20 levels deep; nest it less deeply"
    ]


def test_a_text_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "MAX_CHARACTERS", 10)
    assert refused("graph: order") == ["1:1: the text has 12 characters; use at most 10"]


def test_a_graph_without_a_trigger_begins_at_nodes_without_predecessors() -> None:
    graph = load_graph(
        "graph: a\nactivities: {v: {worker: t}, w: {worker: t}, x: {worker: t}}\n"
        "transitions: [v -> x, w -> x]\n"
    )
    assert graph.nodes[0] == m.TriggerNode(name="start")
    assert graph.edges[2:] == (m.Edge("start", "v"), m.Edge("start", "w"))


def test_a_taken_name_is_not_given_to_a_trigger() -> None:
    assert refused("graph: a\nactivities: {start: {worker: t}}\n")[0] == (
        "1:1: there is no trigger; add one, where the run begins"
    )


def test_job_data_may_be_the_output() -> None:
    graph = load_graph(
        "graph: a\noutput: {k: int}\nactivities: {w: {worker: t, job: {k: result}}}\n"
    )
    assert graph.output == {"k": m.FieldType("int")}


def test_a_file_is_read_and_named(tmp_path: Path) -> None:
    path = tmp_path / "order.yaml"
    path.write_text(ORDER)
    assert load_graph(path) == load_graph(str(path))
    assert load_graph(path).source == f"{path}:1:1"
    path.write_text(ORDER.replace("when: result", "when: resutl"))
    with pytest.raises(GraphInvalid, match=r"order\.yaml:18:38: edge 2\.when: .*mean 'result'"):
        load_graph(path)


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "order.yaml"
    path.write_bytes(b"graph: \xff")
    with pytest.raises(GraphInvalid, match=r"the file is not UTF-8 \(byte 7\)"):
        load_graph(path)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(InputError, match=r"b'graph: a' is no text of a graph, .* decode bytes"):
        load_graph(b"graph: a")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="None is no text of a graph"):
        read_graphs(None)  # type: ignore[arg-type]


def test_a_missing_file_raises_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_graph(str(tmp_path / "nothing.yaml"))


def test_several_graphs_are_read() -> None:
    two = f"{ORDER}---\n{EVERYTHING}"
    assert [graph.name for graph in read_graphs(two)] == ["order", "everything"]
    assert read_graphs("") == []


def test_two_graphs_of_one_name_and_version_are_refused() -> None:
    with pytest.raises(
        GraphInvalid, match="there is a graph 'order' of that version already, in line 1"
    ):
        read_graphs(f"{ORDER}---\n{ORDER}")
    again = ORDER.replace('version: "1"', "version: 2")
    assert [graph.version for graph in read_graphs(f"{ORDER}---\n{again}")] == ["1", "2"]


def test_without_the_yaml_parser_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ruamel.yaml", None)
    with pytest.raises(InputError, match=r"pip install 'perdure\[yaml\]'"):
        load_graph(ORDER)


words = st.sampled_from(
    [
        *("graph", "activities", "transitions", "input", "output", "a", "b", "a -> b", "on"),
        *("error", "when", "from", "to", "1", "true", "null", "a + 1", "'x'", "result", "item"),
        *("into", "collect", *NODE_SYNTAX),
    ]
)
values = st.recursive(
    words | st.integers() | st.booleans() | st.none() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=5),
    max_leaves=30,
)


def judged(text: str) -> None:
    """Any text is a valid graph or is refused with positions."""
    problems: tuple[m.Problem, ...] = ()
    try:
        graph = load_graph(f"{text}\n")
    except GraphInvalid as error:
        problems = error.problems
    else:
        assert problems_of(graph) == []
        return
    assert problems
    assert all(p.where is not None and p.what and p.remedy for p in problems)
    lines = [problem.where.line for problem in problems if problem.where]
    assert lines == sorted(lines)


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_any_text_is_a_graph_or_refused(text: str) -> None:
    judged(text)


@settings(max_examples=300, deadline=None)
@given(values)
def test_any_values_are_a_graph_or_refused(value: object) -> None:
    judged(str(value).replace("None", "null"))


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([ORDER, EVERYTHING]),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 30), st.text(max_size=8) | words)),
)
def test_any_damage_leaves_a_graph_or_is_refused(
    text: str, damages: list[tuple[int, int, str]]
) -> None:
    for start, length, new in damages:
        text = text[:start] + new + text[start + length :]
    judged(text)


def test_a_threshold_is_read() -> None:
    text = "graph: a\nthreshold: 2\nactivities: {w: {worker: t}}\n"
    assert load_graph(text).threshold == 2
    assert load_graph(text.replace("threshold: 2\n", "")).threshold == 0


def test_an_await_may_be_retried() -> None:
    (node,) = (
        node
        for node in load_graph(
            "graph: a\nactivities: {w: {await: p, retry: {attempts: 3}}}\n"
        ).nodes
        if isinstance(node, m.AwaitNode)
    )
    assert node.retry == m.RetryRule(attempts=3)


COMPUTED = """
graph: computed
input: {which: str}
activities:
  w: {worker: {expr: "'do_' + which"}, output: {}}
  a: {await: {expr: which}, output: {}}
  h: {hook: {expr: which}, key: 1, timeout: 5}
  s: {signal: {expr: which}, key: 1}
transitions:
  - w -> a -> h -> s
"""


def test_names_may_be_computed() -> None:
    found = {node.name: node for node in load_graph(COMPUTED).nodes}
    assert found["w"] == m.WorkerNode(name="w", task_from="'do_' + which", output={})
    assert found["a"] == m.AwaitNode(name="a", program_from="which", output={})
    assert found["h"] == m.HookNode(name="h", topic_from="which", key="1", sleep="5")
    assert found["s"] == m.SignalNode(name="s", topic_from="which", key="1")
    b = GraphBuilder("computed", input={"which": str})
    b.worker("w", b.computed("'do_' + which"), output={})
    b.wait_for("a", b.computed("which"), output={})
    b.hook("h", b.computed("which"), key="1", timeout="5")
    b.signal("s", b.computed("which"), key="1")
    b.chain("w", "a", "h", "s")
    assert {node.name: node for node in b.build().nodes} == found
    drawn = text(b.build())
    assert "worker {'do_' + which}" in drawn
    assert "hook {which}, key 1, up to 5 s" in drawn

from tests.cli.conftest import Command


def test_tokens_are_made_listed_and_revoked_and_the_log_says_so(
    perdure_command: Command, orders_url: str
) -> None:
    store = "--store", orders_url
    made = perdure_command(
        *("token", "create", "ci", "--role", "operator", "--scope", "acme"),
        *("--expires", "90d", *store),
    )
    assert made.code == 0, made.err
    prefix, token_id, secret = made.out.strip().split("_")
    assert (prefix, len(token_id), len(secret)) == ("perdure", 16, 64)
    listed = perdure_command("token", "list", *store)
    assert token_id in listed.out
    assert "valid until" in listed.out
    assert secret not in perdure_command("token", "list", "-o", "json", *store).out
    assert perdure_command("token", "revoke", token_id, *store).code == 0
    again = perdure_command("token", "revoke", token_id, *store)
    assert (again.code, "perdure token list" in again.err) == (2, True)
    assert "revoked" in perdure_command("token", "list", *store).out
    log = perdure_command("audit-log", "-o", "jsonl", *store)
    actions = [line.partition('"action": "')[2].partition('"')[0] for line in log.out.splitlines()]
    assert actions == ["token.revoke", "token.create"]
    one = perdure_command("audit-log", "--action", "token.create", "-o", "ids", *store)
    assert len(one.out.split()) == 1


def test_a_token_without_a_role_that_exists_is_not_made(
    perdure_command: Command, sqlite_orders: str
) -> None:
    store = "--store", sqlite_orders
    for wrong in (("--role", "emperor"), ("--expires", "soon"), ("--expires", "0d")):
        refused = perdure_command("token", "create", "ci", *wrong, *store)
        assert (refused.code, refused.out) == (2, "")
    assert perdure_command("token", "list", "-o", "ids", *store).out == ""

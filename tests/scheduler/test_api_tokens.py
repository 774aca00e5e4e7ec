"""API tokens in the store, on both databases: whom they admit, until when, and who ends them."""

from __future__ import annotations

import pytest

from edt_scheduler.errors import NoSuchToken, NoSuchUser, PasswordChanged, TokenInvalid
from edt_scheduler.model.states import Role, Scope
from edt_scheduler.operations import accounts, api_tokens
from edt_scheduler.periodic.sweeping import API_TOKENS_KEPT_SECONDS, sweep_tokens
from edt_scheduler.views import ApiTokenView, UserView
from support.puppets import Stage


def made(stage: Stage, user: UserView, secret: str, scope: Scope = Scope.READ, seconds: float = 60) -> ApiTokenView:
    expires_at = stage.clock() + seconds
    return api_tokens.create(stage.platform, user, name="ci", scope=scope, secret=secret, expires_at=expires_at)


def test_a_token_admits_its_user_with_its_scope_until_it_expires(stage: Stage) -> None:
    ada = accounts.add_user(stage.platform, "ada", "hash")
    token = made(stage, ada, "s-1", Scope.SUBMIT)
    found = api_tokens.verify(stage.platform, "s-1")
    assert found is not None and found.token == token.number
    assert (found.user.id, found.user.role, found.user.scope) == (ada.id, Role.USER, Scope.SUBMIT)
    assert api_tokens.verify(stage.platform, "s-2") is None
    stage.clock.pass_(61)
    assert api_tokens.verify(stage.platform, "s-1") is None
    assert sweep_tokens(stage.platform) == 0 and len(api_tokens.tokens_of(stage.platform, ada)) == 1
    stage.clock.pass_(API_TOKENS_KEPT_SECONDS)
    assert sweep_tokens(stage.platform) == 1 and api_tokens.tokens_of(stage.platform, ada) == []


def test_storing_it_again_is_storing_it_once(stage: Stage) -> None:
    ada = accounts.add_user(stage.platform, "ada", "hash")
    assert made(stage, ada, "s-1") == made(stage, ada, "s-1")
    assert len(api_tokens.tokens_of(stage.platform, ada)) == 1


def test_the_latest_use_is_kept(stage: Stage) -> None:
    ada = accounts.add_user(stage.platform, "ada", "hash")
    token, now = made(stage, ada, "s-1"), stage.clock()
    for times in ({token.number: now + 2}, {token.number: now + 1, 999: now}):
        api_tokens.record_uses(stage.platform, times)
    assert [each.last_used_at for each in api_tokens.tokens_of(stage.platform, ada)] == [now + 2]


def test_its_owner_and_an_admin_revoke_it_and_nobody_else(stage: Stage) -> None:
    ada, bob = (accounts.add_user(stage.platform, name, "hash") for name in ("ada", "bob"))
    first, second = made(stage, ada, "s-1"), made(stage, ada, "s-2")
    with pytest.raises(NoSuchToken):
        api_tokens.revoke(stage.platform, first.number, by=bob)
    assert api_tokens.revoke(stage.platform, first.number, by=ada) == first
    assert api_tokens.revoke(stage.platform, second.number, by=stage.admin) == second
    assert [api_tokens.verify(stage.platform, secret) for secret in ("s-1", "s-2")] == [None, None]
    with pytest.raises(NoSuchToken):
        api_tokens.revoke(stage.platform, first.number, by=ada)


def test_a_new_password_and_the_users_removal_end_it_and_let_no_other_be_made(stage: Stage) -> None:
    seen = accounts.add_user(stage.platform, "ada", "old")
    made(stage, seen, "s-1")
    accounts.set_password(stage.platform, seen, "new")
    assert api_tokens.verify(stage.platform, "s-1") is None
    with pytest.raises(PasswordChanged):
        made(stage, seen, "s-2")
    now = accounts.user(stage.platform, "ada")
    made(stage, now, "s-3")
    accounts.remove_user(stage.platform, "ada")
    assert api_tokens.verify(stage.platform, "s-3") is None
    with pytest.raises(NoSuchUser):
        made(stage, now, "s-4")


def test_a_viewer_is_a_user_whose_tokens_only_read(stage: Stage) -> None:
    vera = accounts.add_user(stage.platform, "vera", "hash", Role.VIEWER)
    assert (vera.sees_all, vera.may_change, vera.is_admin) == (True, False, False)
    for scope in (Scope.SUBMIT, Scope.ADMIN):
        with pytest.raises(TokenInvalid, match="the role viewer does not allow"):
            made(stage, vera, "s-1", scope)
    made(stage, vera, "s-1")

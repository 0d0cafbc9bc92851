//! Access as a whole: tokens are really checked here, so each test has few of them.

use super::*;

fn tokens() -> (Tokens, String) {
    let mut tokens = Tokens::default().with_own("dev");
    let alice = tokens.add("alice", Role::Operator).unwrap();
    (tokens, alice)
}

fn visitor(name: &str, role: Role) -> Visitor {
    Visitor { name: name.into(), role }
}

#[tokio::test]
async fn a_session_is_its_tokens_until_the_token_is_taken_back_or_is_for_something_else() {
    let (tokens, alice) = tokens();
    let access = Access::new(tokens.clone()).unwrap();
    let cookie = access.log_in(None, &alice).await.unwrap();
    assert_eq!(access.session(&cookie).map(|(visitor, _)| visitor), Some(visitor("alice", Role::Operator)));
    assert_eq!(access.session(&alice).map(|(visitor, _)| visitor), None, "a token is no cookie");
    assert_eq!(access.bearer(None, &cookie).await, Err(Refused::Wrong), "a cookie is no token");
    access.set_tokens(tokens.clone());
    assert!(access.session(&cookie).is_some(), "the same tokens change nothing");
    access.set_tokens(Tokens::default());
    access.set_tokens(tokens);
    assert_eq!(access.session(&cookie).map(|(visitor, _)| visitor), None, "an end is an end");
}

#[tokio::test]
async fn a_token_that_was_taken_back_is_not_known_any_more() {
    let (tokens, alice) = tokens();
    let access = Access::new(tokens).unwrap();
    for _ in 0..2 {
        assert_eq!(access.bearer(None, &alice).await, Ok(visitor("alice", Role::Operator)));
    }
    access.set_tokens(Tokens::default());
    assert_eq!(access.bearer(None, &alice).await, Err(Refused::Wrong));
}

#[tokio::test]
async fn the_link_is_good_for_one_session_and_for_nothing_else() {
    let access = Access::new(tokens().0).unwrap();
    let link = access.make_link().unwrap();
    assert_eq!(access.bearer(None, &link).await, Err(Refused::Wrong));
    let cookie = access.log_in(None, &link).await.unwrap();
    assert_eq!(access.session(&cookie).map(|(visitor, _)| visitor), Some(visitor("dev", Role::Operator)));
    assert_eq!(access.log_in(None, &link).await, Err(Refused::Wrong));
    access.log_out(&cookie).await;
    assert_eq!(access.session(&cookie).map(|(visitor, _)| visitor), None);
}

#[tokio::test]
async fn one_token_that_many_show_at_once_is_checked_once_and_a_wrong_one_stays_a_guess_each_time() {
    let (tokens, alice) = tokens();
    let access = Access::new(tokens).unwrap();
    let all =
        |token: &'static str| futures_util::future::join_all((0..40).map(|_| access.bearer(None, token)));
    let found = all(alice.leak()).await;
    assert!(found.iter().all(|found| *found == Ok(visitor("alice", Role::Operator))), "{found:?}");
    let guesses = all("alice.wrong").await;
    assert_eq!(guesses.iter().filter(|guess| **guess == Err(Refused::Wrong)).count(), 10, "{guesses:?}");
    assert!(guesses.iter().any(|guess| matches!(guess, Err(Refused::TooMany(_)))));
    assert_eq!(access.state().checking.len(), 0);
}

#[tokio::test]
async fn who_waits_for_a_check_that_is_given_up_checks_for_itself() {
    let (tokens, alice) = tokens();
    let access = Access::new(tokens).unwrap();
    let mut first = Box::pin(access.bearer(None, &alice));
    assert!(futures_util::poll!(&mut first).is_pending());
    let mut second = Box::pin(access.bearer(None, &alice));
    assert!(futures_util::poll!(&mut second).is_pending());
    assert_eq!(access.state().checking.len(), 1);
    drop(first);
    assert_eq!(second.await, Ok(visitor("alice", Role::Operator)));
}

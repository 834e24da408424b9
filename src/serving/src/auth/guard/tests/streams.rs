//! Open streams, and the requirements that end them.

use super::*;

#[tokio::test(start_paused = true)]
#[expect(clippy::wildcard_enum_match_arm, reason = "anything else is a failure")]
async fn streams_of_an_impersonator_end_with_any_of_its_rights() {
    for refused in ["impersonate", "list", "token"] {
        let stage = Stage::new(AuthorizerMode::Review);
        let _running = stage.run();
        let lease = stage.ask(&[JANE, AS_JOE], &pods("a")).await.unwrap();
        let _hold = lease.hold();
        match refused {
            "token" => stage.tokens.0.lock().unwrap().clear(),
            verb => stage.script.deny(move |access| match access {
                Access::Resource(access) => access.verb == verb,
                Access::Path { .. } => false,
            }),
        }
        tokio::time::timeout(Duration::from_secs(31), lease.revoked())
            .await
            .unwrap_or_else(|_| panic!("{refused}"));
        // A caller that returns is refused, or forwarded so that upstream says why it may not impersonate.
        let refusal = stage.ask(&[JANE, AS_JOE], &pods("a")).await.unwrap_err();
        match refused {
            "token" => assert_eq!(refusal, CallerRefusal::Unauthorized),
            "impersonate" => assert_eq!(refusal, CallerRefusal::Forward),
            verb => match refusal {
                CallerRefusal::Forbidden { access, .. } => match *access {
                    Access::Resource(access) => assert_eq!(access.verb, verb),
                    Access::Path { .. } => unreachable!(),
                },
                other => panic!("{other:?}"),
            },
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_was_deleted_ends_its_own_streams_in_every_mode() {
    for mode in ALL {
        let stage = Stage::new(mode);
        let _running = stage.run();
        let lease = stage.ask(&[JANE], &pods("a")).await.unwrap();
        let other = stage.ask(&[JOE], &pods("a")).await.unwrap();
        let _holds = (lease.hold(), other.hold());
        stage.tokens.0.lock().unwrap().remove("janes-token");
        if mode == AuthorizerMode::SelfCheck {
            // In this mode the token is not reviewed; the caller's own question gets 401.
            stage.script.refuse_user("jane");
        }
        tokio::time::timeout(Duration::from_secs(31), lease.revoked())
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!other.is_revoked());
        let refusal = stage.ask(&[JANE], &pods("a")).await.unwrap_err();
        assert_eq!(refusal, CallerRefusal::Unauthorized);
    }
}

#[tokio::test(start_paused = true)]
async fn two_tokens_of_one_user_have_streams_of_their_own() {
    const OTHER: (&str, &str) = ("authorization", "Bearer janes-other-token");
    for mode in [AuthorizerMode::Review, AuthorizerMode::Rbac] {
        let stage = Stage::new(mode);
        let _running = stage.run();
        {
            let mut known = stage.tokens.0.lock().unwrap();
            let jane = Arc::clone(&known["janes-token"]);
            known.insert("janes-other-token".to_owned(), jane);
        }
        let lease = stage.ask(&[JANE], &pods("a")).await.unwrap();
        let other = stage.ask(&[OTHER], &pods("a")).await.unwrap();
        let _holds = (lease.hold(), other.hold());
        stage.tokens.0.lock().unwrap().remove("janes-other-token");
        tokio::time::timeout(Duration::from_secs(31), other.revoked())
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!lease.is_revoked());
    }
}

/// A caller that impersonates `sue`, as if it had been authenticated by a certificate instead of its token.
async fn impersonating(
    stage: &Stage,
    impersonator: (&'static str, &str),
) -> Result<Caller, CallerRefusal> {
    let chain = [stage.ca.sign(&client("jane", &[]))].into();
    let caller = Caller {
        credential: Credential::Certificate(chain),
        ..stage.authenticate(&[impersonator]).await.unwrap()
    };
    let headers = map(&[("impersonate-user", "sue")]);
    let caller = stage.guard.resolve_impersonation(caller, &headers).await;
    caller.map_err(|denial| denial.refusal)
}

#[tokio::test(start_paused = true)]
async fn two_impersonators_of_one_user_have_streams_of_their_own() {
    for mode in [AuthorizerMode::SelfCheck, AuthorizerMode::Review] {
        let stage = Stage::new(mode);
        let _running = stage.run();
        let mut leases = Vec::new();
        for impersonator in [JANE, JOE] {
            let caller = impersonating(&stage, impersonator).await.unwrap();
            let authorization = stage.guard.authorize(&caller, &pods("a")).await;
            leases.push(authorization.unwrap().lease);
        }
        let _holds: Vec<_> = leases.iter().map(Lease::hold).collect();
        stage.script.deny_user("joe");
        tokio::time::timeout(Duration::from_secs(31), leases[1].revoked())
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!leases[0].is_revoked());
    }
}

/// The request cannot be forwarded for upstream to decide, because upstream would not see the impersonator's certificate.
#[tokio::test(start_paused = true)]
#[expect(clippy::wildcard_enum_match_arm, reason = "anything else is a failure")]
async fn a_caller_that_may_not_review_itself_may_not_impersonate() {
    let stage = Stage::new(AuthorizerMode::SelfCheck);
    stage
        .script
        .then_always(Err(ReviewError::SelfReviewForbidden));
    match impersonating(&stage, JANE).await.unwrap_err() {
        CallerRefusal::Forbidden { user, access, .. } => {
            assert_eq!(user.name, "jane");
            assert_eq!(*access, impersonate("users", "sue"));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_grace_of_a_stream_begins_with_its_first_failed_check() {
    let stage = Stage::new(AuthorizerMode::Review);
    let _running = stage.run();
    stage.ask(&[JANE], &pods("a")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(200)).await;
    // The decision comes from the cache, and is old enough to be checked at once.
    let lease = stage.ask(&[JANE], &pods("a")).await.unwrap();
    let _hold = lease.hold();
    stage.script.then_always(down());
    tokio::time::sleep(Duration::from_secs(295)).await;
    assert!(!lease.is_revoked());
    tokio::time::timeout(Duration::from_secs(15), lease.revoked())
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn decisions_before_a_change_of_roles_are_doubtful() {
    let stage = Stage::new(AuthorizerMode::Review);
    let caller = stage.authenticate(&[JANE]).await.unwrap();
    let question = stage.guard.question(&caller, pods("a")).unwrap();
    let decision = stage.guard.decide(&question).await.ok().unwrap();
    for is_doubtful in [false, true] {
        let requirement = stage.guard.requirement(question.clone(), &decision);
        assert_eq!(requirement.1.is_doubtful, is_doubtful);
        stage.guard.roles_changed(RoleScope::Cluster);
    }
}

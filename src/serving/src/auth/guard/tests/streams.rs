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
            let authorization = stage
                .guard
                .authorize(&caller, &pods("a"), Continuity::New)
                .await;
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

/// One question in the name of `secret`, as a watch that resumes or as another request.
async fn ask_as(
    stage: &Stage,
    secret: &str,
    continuity: Continuity,
) -> Result<Authorization, CallerRefusal> {
    let headers = map(&[("authorization", &format!("Bearer {secret}"))]);
    let peer = PeerIdentity::default();
    let caller = stage.guard.authenticate(&headers, &peer, continuity).await;
    let caller = caller.map_err(|denial| denial.refusal)?;
    stage.guard.authorize(&caller, &pods("a"), continuity).await
}

/// A user whose tokens are bound to pods.
fn bind(stage: &Stage, secret: &str, pod: &str) {
    let extra = [
        ("authentication.kubernetes.io/pod-uid", pod),
        ("authentication.kubernetes.io/credential-id", secret),
    ];
    let user = User {
        name: "system:serviceaccount:a:b".to_owned(),
        extra: extra
            .map(|(key, value)| (key.to_owned(), vec![value.to_owned()]))
            .into(),
        ..User::default()
    };
    stage.tokens.know(secret, user);
}

/// The leases of a user's tokens "one" and "two", which are bound to the pods "pod-1" and "pod-2".
async fn lease_two_pods(stage: &Stage) -> (Lease, Lease) {
    bind(stage, "one", "pod-1");
    bind(stage, "two", "pod-2");
    let one = ask_as(stage, "one", Continuity::New).await.unwrap();
    let two = ask_as(stage, "two", Continuity::New).await.unwrap();
    (one.lease, two.lease)
}

#[tokio::test(start_paused = true)]
async fn tokens_of_one_account_share_decisions_if_upstream_does_not_tell_them_apart() {
    for (mode, state, expected) in [
        (AuthorizerMode::SelfCheck, AuthorizerState::Transparent, 1),
        (AuthorizerMode::Review, AuthorizerState::Transparent, 1),
        (AuthorizerMode::SelfCheck, AuthorizerState::Opaque, 2),
        (AuthorizerMode::Review, AuthorizerState::Opaque, 2),
    ] {
        let stage = Stage::new(mode);
        stage.guard.followed().set_authorizers(state);
        bind(&stage, "one", "pod-1");
        bind(&stage, "two", "pod-2");
        for secret in ["one", "two"] {
            ask_as(&stage, secret, Continuity::New).await.unwrap();
        }
        assert_eq!(stage.script.asked_count(), expected, "{mode:?} {state:?}");
        // A token that is not valid gets nothing from what others were allowed.
        let refused = ask_as(&stage, "three", Continuity::New).await.unwrap_err();
        assert_eq!(refused, CallerRefusal::Unauthorized);
    }
}

#[tokio::test(start_paused = true)]
async fn a_shared_decision_does_not_keep_the_streams_of_a_token_that_was_deleted() {
    let stage = Stage::new(AuthorizerMode::SelfCheck);
    let _running = stage.run();
    let followed = stage.guard.followed();
    followed.set_authorizers(AuthorizerState::Transparent);
    followed.set_bound_objects(true);
    let (one, two) = lease_two_pods(&stage).await;
    let (_one, _two) = (one.hold(), two.hold());
    tokio::time::sleep(Duration::from_secs(60)).await;
    stage.tokens.0.lock().unwrap().remove("one");
    stage.guard.bound_objects_deleted(vec!["pod-1".into()]);
    let deleted_at = Instant::now();
    one.revoked().await;
    assert!(deleted_at.elapsed() <= Duration::from_secs(15));
    assert!(!two.is_revoked());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_resumes_asks_nothing_and_a_list_does() {
    for mode in [
        AuthorizerMode::SelfCheck,
        AuthorizerMode::Review,
        AuthorizerMode::Rbac,
    ] {
        let stage = Stage::new(mode);
        let _running = stage.run();
        let first = ask_as(&stage, "janes-token", Continuity::New)
            .await
            .unwrap();
        let hold = first.lease.hold();
        // Longer than a token or a decision is remembered for a new request.
        tokio::time::sleep(Duration::from_secs(310)).await;
        drop((first, hold));
        tokio::time::sleep(Duration::from_secs(20)).await;
        stage.script.asked();
        let reviews = stage.tokens.reviews();
        let resumed = ask_as(&stage, "janes-token", Continuity::Resumed).await;
        assert!(resumed.is_ok(), "{mode:?}");
        assert_eq!(stage.script.asked_count(), 0, "{mode:?}");
        assert_eq!(stage.tokens.reviews(), reviews, "{mode:?}");
        // Other accesses, and other requests, are new.
        let headers = map(&[("authorization", "Bearer janes-token")]);
        let peer = PeerIdentity::default();
        let caller = stage
            .guard
            .authenticate(&headers, &peer, Continuity::Resumed)
            .await;
        let (caller, access) = (caller.unwrap(), pods("b"));
        let other = stage.guard.authorize(&caller, &access, Continuity::Resumed);
        other.await.unwrap();
        assert_eq!(stage.script.asked_count(), 1, "{mode:?}");
    }
}

/// A list, or a watch that begins with all objects, gives what the stream before it never gave.
#[tokio::test(start_paused = true)]
async fn a_new_request_is_asked_about_although_a_stream_has_its_lease() {
    for mode in [AuthorizerMode::SelfCheck, AuthorizerMode::Review] {
        let stage = Stage::new(mode);
        let _running = stage.run();
        let first = ask_as(&stage, "janes-token", Continuity::New)
            .await
            .unwrap();
        let _hold = first.lease.hold();
        tokio::time::sleep(Duration::from_secs(2)).await;
        stage.script.then_always(denied());
        let scope = RoleScope::Namespace("a".to_owned());
        stage.guard.roles_changed(scope);
        let resumed = ask_as(&stage, "janes-token", Continuity::Resumed).await;
        assert!(resumed.is_ok(), "{mode:?}");
        let refused = ask_as(&stage, "janes-token", Continuity::New).await;
        let is_refused = matches!(refused, Err(CallerRefusal::Forbidden { .. }));
        assert!(is_refused, "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_was_deleted_resumes_nothing_after_a_pause() {
    let stage = Stage::new(AuthorizerMode::Review);
    let _running = stage.run();
    let first = ask_as(&stage, "janes-token", Continuity::New)
        .await
        .unwrap();
    let hold = first.lease.hold();
    tokio::time::sleep(Duration::from_secs(10)).await;
    drop((first, hold));
    tokio::time::sleep(Duration::from_secs(150)).await;
    stage.tokens.0.lock().unwrap().remove("janes-token");
    let refused = ask_as(&stage, "janes-token", Continuity::Resumed).await;
    assert_eq!(refused.unwrap_err(), CallerRefusal::Unauthorized);
    // A token that became another user's is authenticated anew.
    let first = ask_as(&stage, "joes-token", Continuity::New).await.unwrap();
    drop(first);
    tokio::time::sleep(Duration::from_secs(150)).await;
    let jane = User {
        name: "jane".to_owned(),
        ..User::default()
    };
    stage.tokens.know("joes-token", jane);
    let refused = ask_as(&stage, "joes-token", Continuity::Resumed).await;
    assert_eq!(refused.unwrap_err(), CallerRefusal::Unverified);
    let again = ask_as(&stage, "joes-token", Continuity::Resumed).await;
    assert!(again.is_ok());
}

/// Upstream does not check an open watch again, so nothing else may tell for an hour.
#[tokio::test(start_paused = true)]
async fn a_new_request_that_shows_a_token_to_be_invalid_has_its_streams_checked() {
    for mode in ALL {
        let stage = Stage::new(mode);
        let _running = stage.run();
        stage.guard.followed().set_bound_objects(true);
        let (one, two) = lease_two_pods(&stage).await;
        let _holds = (one.hold(), two.hold());
        if mode == AuthorizerMode::SelfCheck {
            tokio::time::sleep(Duration::from_secs(5)).await;
            stage.script.refuse_token("one");
        } else {
            // Longer than a review counts for new requests; pods tell of their end, so nothing is reviewed meanwhile.
            tokio::time::sleep(Duration::from_secs(130)).await;
        }
        stage.tokens.0.lock().unwrap().remove("one");
        let headers = [("authorization", "Bearer one")];
        let refusal = stage.ask(&headers, &pods("b")).await.unwrap_err();
        assert_eq!(refusal, CallerRefusal::Unauthorized, "{mode:?}");
        tokio::time::timeout(Duration::from_secs(2), one.revoked())
            .await
            .unwrap_or_else(|_| panic!("{mode:?}"));
        assert!(!two.is_revoked());
    }
}

#[tokio::test(start_paused = true)]
async fn streams_of_an_impersonator_whose_pod_is_gone_end_as_its_own_do() {
    for mode in [AuthorizerMode::SelfCheck, AuthorizerMode::Review] {
        let stage = Stage::new(mode);
        let _running = stage.run();
        bind(&stage, "one", "pod-1");
        let headers = [("authorization", "Bearer one"), AS_JOE];
        let lease = stage.ask(&headers, &pods("a")).await.unwrap();
        let _hold = lease.hold();
        tokio::time::sleep(Duration::from_secs(5)).await;
        stage.tokens.0.lock().unwrap().remove("one");
        stage.script.refuse_token("one");
        stage.guard.bound_objects_deleted(vec!["pod-1".into()]);
        // The interval is over after 25 s.
        tokio::time::timeout(Duration::from_secs(15), lease.revoked())
            .await
            .unwrap_or_else(|_| panic!("{mode:?}"));
    }
}

#[tokio::test(start_paused = true)]
async fn no_answer_of_before_a_webhook_counts_for_a_token_that_asks_after_it() {
    for mode in [AuthorizerMode::SelfCheck, AuthorizerMode::Review] {
        let stage = Stage::new(mode);
        let followed = stage.guard.followed();
        followed.set_authorizers(AuthorizerState::Transparent);
        bind(&stage, "one", "pod-1");
        // As that of a Secret: nothing tells it from other tokens.
        let account = User {
            name: "system:serviceaccount:a:b".to_owned(),
            ..User::default()
        };
        stage.tokens.know("plain", account);
        ask_as(&stage, "one", Continuity::New).await.unwrap();
        ask_as(&stage, "plain", Continuity::New).await.unwrap();
        assert_eq!(stage.script.asked_count(), 1, "{mode:?}");
        followed.set_authorizers(AuthorizerState::Opaque);
        stage.script.then_always(denied());
        let refused = ask_as(&stage, "plain", Continuity::New).await;
        let is_refused = matches!(refused, Err(CallerRefusal::Forbidden { .. }));
        assert!(is_refused, "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_webhook_appears_streams_that_shared_an_answer_are_asked_about_one_by_one() {
    for mode in [AuthorizerMode::SelfCheck, AuthorizerMode::Review] {
        let stage = Stage::new(mode);
        let _running = stage.run();
        let followed = stage.guard.followed();
        followed.set_authorizers(AuthorizerState::Transparent);
        followed.set_bound_objects(true);
        let (one, two) = lease_two_pods(&stage).await;
        let _holds = (one.hold(), two.hold());
        followed.set_authorizers(AuthorizerState::Opaque);
        stage.script.deny_pod("pod-1");
        tokio::time::timeout(Duration::from_secs(31), one.revoked())
            .await
            .unwrap_or_else(|_| panic!("{mode:?}"));
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(!two.is_revoked(), "{mode:?}");
    }
}

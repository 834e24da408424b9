//! Responses to token reviews: a caller is authenticated only if the response says so explicitly.
#![no_main]

use kube_fanout::auth::token_review::{reviewed, self_reviewed};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|answer: &[u8]| {
    // Values of unknown fields are skipped without being validated, so a response may be read that is not a valid JSON tree.
    let tree = serde_json::from_slice::<Value>(answer).ok();
    let status = tree.as_ref().map(|tree| &tree["status"]);
    for audiences in [vec![], vec!["a".to_owned(), "b".to_owned()]] {
        let Ok(review) = serde_json::from_slice(answer) else {
            continue;
        };
        let Ok(Some(user)) = reviewed(review, &audiences) else {
            continue;
        };
        assert!(!user.name.is_empty());
        let Some(status) = status else {
            continue;
        };
        assert_eq!(status["authenticated"], Value::Bool(true));
        assert_eq!(status["user"]["username"], user.name.as_str());
        let named = status["audiences"].as_array().into_iter().flatten();
        let mut named = named.filter_map(Value::as_str);
        assert!(audiences.is_empty() || named.any(|one| audiences.iter().any(|own| own == one)));
        for group in &user.groups {
            let mut told = status["user"]["groups"].as_array().into_iter().flatten();
            assert!(group == "system:authenticated" || told.any(|one| one == group.as_str()));
        }
    }
    if let Ok(review) = serde_json::from_slice(answer)
        && let Ok(Some(user)) = self_reviewed(review)
    {
        assert!(!user.name.is_empty() && user.name != "system:anonymous");
        if let Some(status) = status {
            assert_eq!(status["userInfo"]["username"], user.name.as_str());
        }
    }
});

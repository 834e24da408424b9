//! A token is refused, or written again it is read as the same.
#![no_main]

use kube_fanout::downstream::continue_token::ContinueToken;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(token) = ContinueToken::decode(text) {
        assert_eq!(ContinueToken::decode(&token.encode()), Ok(token));
    }
});

//! A token is rejected, or is read as the same token after it is written again. Every token that is written can be read, unless it leaves
//! its range.
#![no_main]

use kube_fanout::protocol::continue_token::ContinueToken;
use kube_fanout::resource::ResourceVersion;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Some(token) = ContinueToken::decode(text) {
        for token in [token.at_latest(), token] {
            assert_eq!(ContinueToken::decode(&token.encode()), Some(token));
        }
    }
    let version = ResourceVersion(u64::try_from(text.len()).unwrap_or(0) + 1);
    let token = ContinueToken::after(text, version);
    let leaves = token
        .start
        .split('/')
        .any(|part| matches!(part, "" | "." | ".."));
    let read = ContinueToken::decode(&token.encode());
    assert_eq!(read.is_none(), leaves);
    if let Some(read) = read {
        assert_eq!(read, token);
    }
});

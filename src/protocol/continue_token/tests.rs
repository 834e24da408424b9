//! Continue tokens, checked against those that a real API server issues and the errors it returns.

use super::*;

#[track_caller]
fn refused(json: &str, message: &str) {
    refused_token(&base64::encode(json.as_bytes()), json, message);
}

#[track_caller]
fn refused_token(token: &str, shown: &str, message: &str) {
    let expected = Status::bad_request(format!(
        "invalid continue token: continue key is not valid: {message}"
    ));
    assert_eq!(ContinueToken::decode(token), Err(expected), "{shown}");
}

#[test]
fn tokens_are_byte_equal_to_upstreams() {
    let token = ContinueToken::after("ns1/cm1", ResourceVersion(14));
    let text = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTQsInN0YXJ0IjoiL25zMS9jbTFcdTAwMDAifQ";
    assert_eq!(token.encode(), text);
    assert_eq!(ContinueToken::decode(text), Ok(token));
}

#[test]
fn tokens_of_etcd_served_pages_lack_the_slash() {
    let text = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoicDJcdTAwMDAifQ";
    let token = ContinueToken::after("p2", ResourceVersion(214)).at_latest();
    assert_eq!(ContinueToken::decode(text), Ok(token));
}

#[test]
fn fields_are_found_in_any_case_and_the_last_one_wins() {
    let json = r#" {"V":"x","v":"meta.k8s.io/v1","RV":1,"Start":"/","x":[{}]} "#;
    let token = ContinueToken::decode(&base64::encode(json.as_bytes()));
    assert_eq!(token.map(|token| token.start), Ok(String::new()));
}

#[test]
fn wrong_fields_are_told() {
    for (json, message) in [
        ("{}", "server does not recognize this encoded version "),
        ("null", "server does not recognize this encoded version "),
        (
            r#"{"v":"é<"}"#,
            "server does not recognize this encoded version é<",
        ),
        (
            r#"{"v":"meta.k8s.io/v1"}"#,
            "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        ),
        (
            r#"{"v":"meta.k8s.io/v1","rv":null,"start":"a"}"#,
            "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        ),
        (
            r#"{"v":"meta.k8s.io/v1","rv":1}"#,
            "encoded start key empty (version meta.k8s.io/v1)",
        ),
        (
            r#"{"v":1}"#,
            "json: cannot unmarshal number into Go struct field continueToken.v of type string",
        ),
        (
            r#"{"v":true,"rv":[],"start":1}"#,
            "json: cannot unmarshal bool into Go struct field continueToken.v of type string",
        ),
        (
            r#"{"rv":"x"}"#,
            "json: cannot unmarshal string into Go struct field continueToken.rv of type int64",
        ),
        (
            r#"{"rv":1.5}"#,
            "json: cannot unmarshal number 1.5 into Go struct field continueToken.rv of type int64",
        ),
        (
            r#"{"rv":99999999999999999999}"#,
            "json: cannot unmarshal number 99999999999999999999 into Go struct field continueToken.rv of type int64",
        ),
        (
            r#"{"start":{}}"#,
            "json: cannot unmarshal object into Go struct field continueToken.start of type string",
        ),
        (
            "[]",
            "json: cannot unmarshal array into Go value of type storage.continueToken",
        ),
        (
            "true",
            "json: cannot unmarshal bool into Go value of type storage.continueToken",
        ),
    ] {
        refused(json, message);
    }
}

#[test]
fn keys_that_could_leave_the_range_are_refused() {
    for start in ["../a", "a//b", "a/", "//a", "a/../b", "."] {
        refused(
            &format!(r#"{{"v":"meta.k8s.io/v1","rv":1,"start":"{start}"}}"#),
            start,
        );
    }
}

#[test]
fn broken_json_is_told_in_gos_words() {
    for (json, message) in [
        ("{", "unexpected end of JSON input"),
        ("\"", "unexpected end of JSON input"),
        (r#"{"v":"a"#, "unexpected end of JSON input"),
        (r#"{"v":[1,2"#, "unexpected end of JSON input"),
        (
            r#"{"v":"a"}x"#,
            "invalid character 'x' after top-level value",
        ),
        (r#"{"v" "a"}"#, "invalid character '\"' after object key"),
        (
            r#"{"v":"a",}"#,
            "invalid character '}' looking for beginning of object key string",
        ),
        (
            "{v:1}",
            "invalid character 'v' looking for beginning of object key string",
        ),
        (
            r#"{"v":tru}"#,
            "invalid character '}' in literal true (expecting 'e')",
        ),
        (
            r#"{"v":01}"#,
            "invalid character '1' after object key:value pair",
        ),
        ("-", "invalid character ' ' in numeric literal"),
        (
            "[tru",
            "invalid character ' ' in literal true (expecting 'e')",
        ),
        (r#"{"v":-}"#, "invalid character '}' in numeric literal"),
        (
            r#"{"v":1.}"#,
            "invalid character '}' after decimal point in numeric literal",
        ),
        (
            r#"{"v":1e}"#,
            "invalid character '}' in exponent of numeric literal",
        ),
        (
            r#"{"v":"\x"}"#,
            "invalid character 'x' in string escape code",
        ),
        (
            r#"{"v":"\u12x"}"#,
            "invalid character 'x' in \\u hexadecimal character escape",
        ),
        (
            "{\"v\":\"a\nb\"}",
            "invalid character '\\n' in string literal",
        ),
        ("[1 2]", "invalid character '2' after array element"),
        (
            "'",
            r"invalid character '\'' looking for beginning of value",
        ),
    ] {
        refused(json, message);
    }
}

#[test]
fn broken_base64_is_told_by_its_place() {
    for (token, message) in [
        (
            "garbage",
            r"invalid character '\u0081' looking for beginning of value",
        ),
        ("a", "illegal base64 data at input byte 0"),
        ("abcde", "illegal base64 data at input byte 4"),
        ("a=", "illegal base64 data at input byte 1"),
        ("YQ==", "illegal base64 data at input byte 2"),
        ("YW+", "illegal base64 data at input byte 2"),
        ("abcdé", "illegal base64 data at input byte 4"),
        (
            "ab\ncd",
            "invalid character 'i' looking for beginning of value",
        ),
        (
            "YWJ",
            "invalid character 'a' looking for beginning of value",
        ),
    ] {
        refused_token(token, token, message);
    }
}

proptest::proptest! {
    #[test]
    fn every_token_comes_back(key in "[a-z0-9.-]{0,3}[a-z]/[a-z<&\"é]{1,5}", rv in 1..u64::MAX / 2) {
        let token = ContinueToken::after(&key, ResourceVersion(rv));
        proptest::prop_assert_eq!(ContinueToken::decode(&token.encode()), Ok(token));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..64), text in "[-_a-zA-Z0-9=+\n]{0,20}") {
        assert_eq!(base64::decode(base64::encode(&bytes).as_bytes()).as_ref(), Ok(&bytes));
        let _ = ContinueToken::decode(&base64::encode(&bytes));
        let _ = ContinueToken::decode(&text);
    }
}

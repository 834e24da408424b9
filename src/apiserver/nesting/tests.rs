//! Tests that deep values are parsed like shallow ones, and do not overflow a stack.

use serde_json::json;

use super::*;

fn nested(depth: usize) -> String {
    format!(
        "{}0{}",
        r#"{"a":["#.repeat(depth / 2),
        "]}".repeat(depth / 2)
    )
}

#[test]
fn a_deep_text_is_read_as_serde_json_would() {
    let inner = r#" { "a b" : [ 1 , -2.5e3 , true , null , "x\"]\\" , {} , [ ] , "\u00e9" ] , "a b" : "last" , "c" : {"d":"}"} } "#;
    assert_eq!(
        build(inner.as_bytes()).unwrap(),
        serde_json::from_str::<Value>(inner).unwrap()
    );
    assert_eq!(build(b" 7 ").unwrap(), json!(7));
}

#[test]
fn the_depth_of_texts_and_values_is_the_same() {
    for (text, expected) in [
        ("7", 0),
        ("[]", 1),
        (r#"{"a":"[[[\"[["}"#, 1),
        (r#"{"a":[{}],"b":[]}"#, 3),
    ] {
        assert_eq!(text_depth(text.as_bytes()), expected, "{text}");
        let value = serde_json::from_str(text).unwrap();
        assert_eq!(depth(&value), expected, "{text}");
    }
}

#[test]
fn the_deepest_value_can_be_read_copied_compared_written_and_dropped() {
    let text = nested(DEPTH_MAX);
    let outcome = with_stack(text_depth(text.as_bytes()), || {
        let value = parse(text.as_bytes()).unwrap();
        let copy = value.clone();
        assert_eq!(depth(&copy), DEPTH_MAX);
        assert!(copy == value);
        Ok(serde_json::to_vec(&value).unwrap())
    });
    assert_eq!(outcome.unwrap(), text.as_bytes());
}

#[test]
fn what_is_deeper_or_no_json_is_refused_in_go_s_words() {
    for (text, offender) in [(nested(DEPTH_MAX + 2), '{'), ("[".repeat(1 << 20), '[')] {
        assert_eq!(
            parse(text.as_bytes()).unwrap_err(),
            format!("invalid character '{offender}' exceeded max depth")
        );
    }
    let cut = &nested(500)[..700];
    assert_eq!(
        parse(cut.as_bytes()).unwrap_err(),
        "unexpected end of JSON input"
    );
}

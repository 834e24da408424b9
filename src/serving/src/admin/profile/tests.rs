//! Tests of profiles, over requests without a connection.

use std::net::Ipv4Addr;
use std::sync::Arc;

use http_body_util::BodyExt;

use super::*;

async fn ask(address: [u8; 4], query: &str) -> (u16, bytes::Bytes) {
    let request = Request::get(format!("/debug/profile{query}"))
        .header("host", "localhost")
        .body(())
        .unwrap();
    let mut visit = Visit::of(&request, Ipv4Addr::from(address).into(), None, None);
    let response = answer(&request, &mut visit).await;
    let status = response.status().as_u16();
    (
        status,
        response.into_body().collect().await.unwrap().to_bytes(),
    )
}

const HERE: [u8; 4] = [127, 0, 0, 1];

/// Uses CPU time until the caller drops its clone of the flag. The function's name is in the profile.
#[inline(never)]
fn burn_for_the_profile(wanted: &Arc<()>) -> u64 {
    let mut sum = 0_u64;
    while Arc::strong_count(wanted) > 1 {
        sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
    }
    sum
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_profile_names_what_uses_the_cpu_and_there_is_one_at_a_time() {
    let wanted = Arc::new(());
    let burning = Arc::clone(&wanted);
    let burning = std::thread::spawn(move || burn_for_the_profile(&burning));
    let first = ask(HERE, "?seconds=2");
    let second = async {
        // Polled after the first one, which holds the timer by then.
        ask(HERE, "?seconds=1").await
    };
    let ((status, profile), (refused, _)) = tokio::join!(biased; first, second);
    drop(wanted);
    burning.join().unwrap();
    assert_eq!((status, refused), (200, 429));
    let name = b"burn_for_the_profile";
    let mut parts = profile.windows(name.len());
    assert!(parts.any(|part| part == name), "{} bytes", profile.len());
}

#[tokio::test]
async fn a_profile_is_bounded_and_for_clients_of_this_machine() {
    for query in [
        "?seconds=0",
        "?seconds=61",
        "?seconds=x",
        "?seconds=",
        "?second=1",
    ] {
        assert_eq!(ask(HERE, query).await.0, 400, "{query}");
    }
    assert_eq!(ask([127, 0, 0, 2], "?seconds=1").await.0, 403);
}

//! Tests of the syntax of filters, and of what puts one in force.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::*;

fn filter(text: &str) -> LogFilter {
    text.parse().unwrap()
}

#[test]
fn a_filter_is_written_as_it_is_read() {
    for text in [
        "info",
        "off",
        "info,kube_fanout::upstream=debug,h2=off",
        "kube_fanout::upstream=trace",
    ] {
        assert_eq!(filter(text).to_string(), text);
    }
    let loose = filter(" kube_fanout::upstream = DEBUG , Warn ");
    assert_eq!(loose.to_string(), "warn,kube_fanout::upstream=debug");
}

/// As copied from a log line, and as documented.
#[test]
fn a_crate_of_the_gateway_is_the_module_of_its_name() {
    let put = filter("kube_fanout_upstream=debug");
    assert_eq!(put.to_string(), "kube_fanout::upstream=debug");
    let put_of_another = filter("kube_fanout_serving::serve=debug");
    assert_eq!(put_of_another.to_string(), "kube_fanout::serve=debug");
    let in_force = put.over(&filter("info,kube_fanout::upstream::client=warn"));
    assert_eq!(in_force.to_string(), "info,kube_fanout::upstream=debug");
    let repeated = "kube_fanout_upstream=info,kube_fanout::upstream=debug".parse::<LogFilter>();
    assert_eq!(
        repeated,
        Err(InvalidFilter::Repeated("kube_fanout::upstream".to_owned()))
    );
}

#[test]
fn a_filter_with_a_mistake_is_refused_as_a_whole() {
    for text in [
        "",
        "inof",
        "info,",
        "info,,debug",
        "kube_fanout",
        "kube_fanout=",
        "kube_fanout=loud",
        "kube_fanout=3",
        "=debug",
        "kube fanout=debug",
        "kube_fanout:upstream=debug",
        "kube_fanout::=debug",
        "[request{user=a}]=trace",
        "a=b=debug",
    ] {
        let error = text.parse::<LogFilter>().unwrap_err();
        assert!(matches!(error, InvalidFilter::Directive(_)), "{text:?}");
        assert!(error.to_string().contains("error, warn, info"), "{error}");
    }
    let repeated = "info,a=debug,a=info".parse::<LogFilter>();
    assert_eq!(repeated, Err(InvalidFilter::Repeated("a".to_owned())));
    assert!("info,debug".parse::<LogFilter>().is_err());
}

#[test]
fn a_filter_is_bounded_and_so_is_the_error_about_it() {
    let many: Vec<String> = (0..65).map(|at| format!("m{at}=info")).collect();
    assert_eq!(
        many[..64]
            .join(",")
            .parse::<LogFilter>()
            .unwrap()
            .modules()
            .len(),
        64
    );
    assert_eq!(
        many.join(",").parse::<LogFilter>(),
        Err(InvalidFilter::TooMany)
    );
    let long = "x".repeat(FILTER_LEN_MAX);
    let error = long.parse::<LogFilter>().unwrap_err();
    assert!(error.to_string().len() < 300, "{error}");
    let longer = "x".repeat(FILTER_LEN_MAX + 1);
    assert_eq!(longer.parse::<LogFilter>(), Err(InvalidFilter::TooLong));
}

/// A control, and the filter that it has put in force last.
fn control(configured: &str) -> (LogControl, Arc<Mutex<String>>) {
    let in_force = Arc::new(Mutex::new(configured.to_owned()));
    let applied = Arc::clone(&in_force);
    let control = LogControl::new(filter(configured), move |filter| {
        *applied.lock() = filter.to_string();
    });
    (control, in_force)
}

#[tokio::test(start_paused = true)]
async fn a_filter_for_a_time_ends_with_it_and_the_next_one_is_not_cut_short() {
    let (control, in_force) = control("info");
    let running = control.clone();
    tokio::spawn(async move { running.run().await });
    let minute = Some(Duration::from_secs(60));
    control.change(filter("a=debug"), minute, "test");
    assert_eq!(*in_force.lock(), "info,a=debug");
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(*in_force.lock(), "info,a=debug");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(*in_force.lock(), "info");
    assert_eq!(control.state().until, None);

    control.change(filter("a=debug"), minute, "test");
    tokio::time::sleep(Duration::from_secs(30)).await;
    control.change(filter("warn"), None, "test");
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(*in_force.lock(), "warn");
}

#[tokio::test(start_paused = true)]
async fn a_filter_for_a_time_ends_with_the_settings_of_then() {
    let (control, in_force) = control("info");
    let running = control.clone();
    tokio::spawn(async move { running.run().await });
    control.configure(filter("warn"), "test");
    control.change(filter("debug"), Some(Duration::from_secs(1)), "test");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(*in_force.lock(), "warn");
    control.change(filter("debug"), None, "test");
    control.reset("test");
    assert_eq!(*in_force.lock(), "warn");
}

#[tokio::test(start_paused = true)]
async fn modules_that_a_filter_does_not_name_keep_the_level_of_the_settings() {
    let (control, in_force) = control("info,h2=off,a::b=warn,ab=error");
    control.change(filter("a=debug"), None, "test");
    assert_eq!(*in_force.lock(), "info,a=debug,h2=off,ab=error");
    control.change(filter("warn,a=debug"), None, "test");
    assert_eq!(*in_force.lock(), "warn,a=debug");
}

//! Tests of the command line: flags, help, and the syntax of values.

use std::time::Duration;

use clap::error::ErrorKind;

use super::*;

fn parse(line: &str) -> Result<Flags, clap::Error> {
    Flags::try_parse_from(line.split_whitespace())
}

#[test]
fn the_description_is_consistent() {
    Flags::command().debug_assert();
}

#[track_caller]
fn refused(line: &str, kind: ErrorKind) {
    match parse(line) {
        Ok(flags) => panic!("accepted: {flags:?}"),
        Err(error) => assert_eq!(error.kind(), kind, "{error}"),
    }
}

#[test]
fn what_is_not_a_flag_or_not_a_value_is_refused() {
    refused(
        "kube-fanout serve --lisen 127.0.0.1:1",
        ErrorKind::UnknownArgument,
    );
    refused(
        "kube-fanout serve --listen here",
        ErrorKind::ValueValidation,
    );
    refused("kube-fanout serve --auth maybe", ErrorKind::InvalidValue);
    refused(
        "kube-fanout serve --ring-bytes-max 5Mb",
        ErrorKind::ValueValidation,
    );
    refused(
        "kube-fanout apiserver --objects pods",
        ErrorKind::ValueValidation,
    );
    refused("kube-fanout gateway", ErrorKind::InvalidSubcommand);
}

#[test]
fn a_demo_can_be_bounded() {
    let flags =
        parse("kube-fanout demo --watchers 10 --churn 5 --objects pods=10 --duration 3s").unwrap();
    let Command::Demo(demo) = flags.command else {
        panic!("{:?}", flags.command);
    };
    assert_eq!((demo.watchers, demo.churn), (10, 5));
    assert_eq!(demo.objects, [ObjectCount::new("pods", 10)]);
    assert_eq!(demo.duration, Some(TimeSpan(Duration::from_secs(3))));
}

#[test]
fn process_flags_stand_before_or_after_the_command() {
    for line in [
        "kube-fanout --log-format json demo",
        "kube-fanout demo --log-format json",
    ] {
        assert_eq!(
            parse(line).unwrap().process.log_format,
            LogFormat::Json,
            "{line}"
        );
    }
}

#[test]
fn every_flag_has_help() {
    let mut commands = vec![command()];
    while let Some(command) = commands.pop() {
        for flag in command.get_arguments() {
            assert!(
                flag.get_help().is_some(),
                "{} of {}",
                flag.get_id(),
                command.get_name()
            );
        }
        commands.extend(
            command
                .get_subcommands()
                .filter(|c| c.get_name() != "help")
                .cloned(),
        );
    }
}

#[track_caller]
fn check_len(text: &str, len: Option<usize>, written: &str) {
    let parsed = text.parse::<ByteLen>().ok();
    assert_eq!(parsed, len.map(ByteLen));
    if let Some(len) = parsed {
        assert_eq!(len.to_string(), written);
    }
}

#[test]
fn lengths_are_read_and_written_in_binary_units() {
    check_len("4096", Some(4096), "4Ki");
    check_len("16MiB", Some(16 << 20), "16Mi");
    check_len("1 GiB", Some(1 << 30), "1Gi");
    check_len("2048Gi", Some(2 << 40), "2Ti");
    check_len("1200", Some(1200), "1200");
    check_len("0", Some(0), "0");
    check_len("MiB", None, "");
    check_len("5MB", None, "");
    check_len("-1", None, "");
    check_len("99999999999999GiB", None, "");
}

#[test]
fn lengths_are_quantities_as_kubernetes_writes_them() {
    for (text, len) in [
        ("2Gi", 2 << 30),
        ("500Mi", 500 << 20),
        ("1.5Gi", 3 << 29),
        ("64Ki", 64 << 10),
        ("1Ti", 1 << 40),
        ("1Pi", 1 << 50),
        (".5Ki", 512),
        ("5.Ki", 5 << 10),
        ("+1Ki", 1 << 10),
        ("1k", 1_000),
        ("1.5G", 1_500_000_000),
        ("2T", 2_000_000_000_000),
        ("129e6", 129_000_000),
        ("1E3", 1_000),
        ("1E", 1_000_000_000_000_000_000),
        ("1e+2", 100),
        ("2500e-2", 25),
        ("128974848000m", 128_974_848),
        ("5000000u", 5),
        ("1n", 1),
        ("0.1Ki", 103),
        ("0.5", 1),
        ("007", 7),
        ("1.50000000000000000000000000Ki", 1_536),
        ("1e-99999999", 1),
    ] {
        assert_eq!(text.parse(), Ok(ByteLen(len)), "{text}");
    }
    for text in [
        "",
        ".",
        "+",
        "Gi",
        "e3",
        "1e",
        "1e3Ki",
        "1.5.5",
        "1KI",
        "1K",
        "1gi",
        "2GB",
        "1 2",
        "-1Gi",
        "NaN",
        "inf",
        "16Ei",
        "1e99",
        "99999999999999999999",
        "1e99999999999",
        "1\u{b2}",
    ] {
        assert_eq!(
            text.parse::<ByteLen>(),
            Err(InvalidValue::ByteLen),
            "{text}"
        );
    }
}

#[test]
fn spans_are_written_as_one_word_that_reads_back() {
    for (millis, written) in [
        (2, "2ms"),
        (1_500, "1s500ms"),
        (75_000, "1m15s"),
        (600_000, "10m"),
        (3_600_000, "1h"),
        (7 * 86_400_000, "168h"),
        (0, "0s"),
    ] {
        let span = TimeSpan(Duration::from_millis(millis));
        assert_eq!(span.to_string(), written);
        assert_eq!(written.parse(), Ok(span));
    }
    // As Go writes it.
    let hour = TimeSpan(Duration::from_secs(3_600));
    assert_eq!("1h0m0s".parse(), Ok(hour));
    assert_eq!("75".parse::<TimeSpan>(), Err(InvalidValue::Span));
}

#[test]
fn ratios_are_parts_of_a_whole() {
    for (text, ratio) in [
        ("0", Some(0)),
        ("0.0", Some(0)),
        ("0.01", Some(10_000)),
        ("0.000001", Some(1)),
        ("1", Some(1_000_000)),
        ("1.000", Some(1_000_000)),
        ("1.000001", None),
        ("2", None),
        ("-0.1", None),
        ("1e-3", None),
        ("0.0000001", None),
        ("", None),
        (".", None),
        ("0.", None),
        ("99999999999", None),
        ("NaN", None),
    ] {
        assert_eq!(text.parse::<Ratio>().ok(), ratio.map(Ratio), "{text:?}");
    }
    assert_eq!(Ratio(10_000).to_string(), "0.01");
    assert_eq!(Ratio(1).to_string().parse(), Ok(Ratio(1)));
}

#[test]
fn percentages_are_from_0_to_100_with_four_decimals() {
    for (text, percentage) in [
        ("0", Some(0)),
        ("0.0001", Some(1)),
        ("12.5", Some(125_000)),
        ("100", Some(1_000_000)),
        ("100.0001", None),
        ("0.00001", None),
        ("-1", None),
        ("1%", None),
        ("ten", None),
        ("", None),
    ] {
        let parsed = text.parse::<Percentage>().ok();
        assert_eq!(parsed, percentage.map(Percentage), "{text:?}");
    }
    assert_eq!(Percentage(125_000).to_string(), "12.5");
    assert!((Percentage(125_000).part() - 0.125).abs() < f64::EPSILON);
}

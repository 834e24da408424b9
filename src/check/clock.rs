//! Verdicts about clocks. Times are seconds since 1970.

use super::verdict::CheckVerdict;

/// `Date` has whole seconds, and a response takes a moment.
const SKEW_WARNING: i64 = 5;
/// Tokens and certificates that were issued just now are refused.
const SKEW_FAILURE: i64 = 60;

/// Whether this clock agrees with the server's, which lies between `before` and `after` if it does.
pub(super) fn skew_verdict(server: i64, before: i64, after: i64) -> CheckVerdict {
    let skew = match server {
        early if early < before => early - before,
        late if late > after => late - after,
        _ => 0,
    };
    let direction = if skew < 0 { "ahead of" } else { "behind" };
    let seconds = skew.unsigned_abs();
    let text = format!("this clock is {seconds} s {direction} the API server's");
    let hint = "synchronise the clocks of this machine and of the control plane (chrony, systemd-timesyncd)";
    match skew.abs() {
        skew if skew >= SKEW_FAILURE => CheckVerdict::failure(text, hint),
        skew if skew >= SKEW_WARNING => CheckVerdict::warning(text, hint),
        _ => CheckVerdict::ok("this clock agrees with the API server's"),
    }
}

//! The comparison of informers: see the library.

fn main() -> std::process::ExitCode {
    kube_fanout_loadtest::informers()
}

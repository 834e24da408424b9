//! Informers for the real suites: see the library.

fn main() -> std::process::ExitCode {
    kube_fanout_loadtest::informers()
}

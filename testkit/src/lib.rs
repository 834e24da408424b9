//! What the suites, the load test and the demo test with. It shares no code with what it tests.

pub mod apiserver;

//! Replaces the C library's clock and random numbers in this program, so that everything that std and other crates take from them
//! follows from the seed: `Instant`, `SystemTime`, the keys of hash maps, the seeds of tokio's and fastrand's generators.

#![expect(
    unsafe_code,
    reason = "functions of the C library can be replaced in no other way"
)]

use std::cell::Cell;
use std::time::Duration;

/// 2026-01-01: where simulated time starts.
const START: Duration = Duration::from_secs(1_767_225_600);
/// `CLOCK_REALTIME` of Linux.
const REALTIME: i32 = 0;

thread_local! {
    /// The simulated time of this thread; real time without one.
    static NOW: Cell<Option<Duration>> = const { Cell::new(None) };
    static WALL_JUMP: Cell<i64> = const { Cell::new(0) };
    static RANDOM: Cell<u64> = const { Cell::new(0x5eed) };
}

/// Makes this thread's clock and random numbers follow from the seed.
pub(crate) fn begin(seed: u64) {
    RANDOM.set(seed);
    set_now(Duration::ZERO);
    kube_fanout::resource::replay_random(seed);
}

/// Sets the time since the start of the simulation.
pub(crate) fn set_now(elapsed: Duration) {
    NOW.set(Some(elapsed));
}

/// Moves the wall clock, which differs from the other clocks from now on.
pub(crate) fn jump_wall_clock(seconds: i64) {
    WALL_JUMP.set(WALL_JUMP.get() + seconds);
}

/// `struct timespec` of 64-bit Linux.
#[repr(C)]
pub(crate) struct TimeSpec {
    seconds: i64,
    nanoseconds: i64,
}

/// The C library's `clock_gettime`.
///
/// # Safety
/// `time` must be valid for writing.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: i32, time: *mut TimeSpec) -> i32 {
    let now = match NOW.try_with(Cell::get).ok().flatten() {
        Some(elapsed) if clock == REALTIME => {
            let at = START + elapsed;
            let seconds = at.as_secs().cast_signed() + WALL_JUMP.get();
            TimeSpec {
                seconds,
                nanoseconds: at.subsec_nanos().into(),
            }
        }
        Some(elapsed) => {
            let at = START + elapsed;
            TimeSpec {
                seconds: at.as_secs().cast_signed(),
                nanoseconds: at.subsec_nanos().into(),
            }
        }
        None => {
            let id = if clock == REALTIME {
                rustix::time::ClockId::Realtime
            } else {
                rustix::time::ClockId::Monotonic
            };
            let at = rustix::time::clock_gettime(id);
            TimeSpec {
                seconds: at.tv_sec,
                nanoseconds: at.tv_nsec,
            }
        }
    };
    // SAFETY: the caller passes a place for the result, as the C library demands.
    unsafe { time.write(now) };
    0
}

/// The C library's `getrandom`.
///
/// # Safety
/// `buffer` must be valid for writing `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut u8, len: usize, _flags: u32) -> isize {
    for at in 0..len {
        let state = RANDOM.try_with(Cell::get).unwrap_or_default();
        let next = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let _ = RANDOM.try_with(|random| random.set(next));
        // SAFETY: the caller passes a buffer of `len` bytes, as the C library demands.
        unsafe { buffer.wrapping_add(at).write((next >> 56) as u8) };
    }
    len.cast_signed()
}

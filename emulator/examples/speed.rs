//! Runs a static program until it halts, and says how fast.
use std::sync::Arc;
use unwind_sim_emulator::*;
fn main() {
    let path = std::env::args().nth(1).unwrap();
    let bytes: Vec<u8> = std::fs::read(&path).unwrap();
    let len = bytes.len();
    let bytes = unwind_sim_unwind::image::Bytes::new(Arc::new(bytes), 0..len).unwrap();
    let mut space = AddressSpace::default();
    let loaded = load(
        &mut space,
        &bytes,
        None,
        &[b"x"],
        &[],
        &LoadOptions::default(),
    )
    .unwrap();
    let mut m = Machine::new(State::new(space));
    m.state.rip = loaded.entry;
    m.state.set_gpr(4, loaded.rsp);
    let t = std::time::Instant::now();
    let e = m.run(u64::MAX, &mut ());
    let s = t.elapsed().as_secs_f64();
    println!(
        "{e:?} rip {:x} rdi {:x} n {} {:.1} MIPS code bytes {}",
        m.state.rip,
        m.state.gpr(7),
        m.executed(),
        m.executed() as f64 / s / 1e6,
        m.code_bytes()
    );
}

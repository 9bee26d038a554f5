//! Hostile BPF objects: reads and loads them, and runs their programs for a while.

use unwind_sim_perf_model::bpf::{Context, Handlers, Limits, Object, PerfEventData, PlainEnv};

/// Maximum bytes of all maps.
const MAP_BYTES: u64 = 1 << 24;
/// Maximum instructions run of each program.
const BUDGET: u64 = 4096;
/// Maximum number of programs run.
const PROGRAMS_MAX: usize = 16;

/// A BPF object.
pub fn bpf_object(data: &[u8]) {
    let object = match Object::parse(data) {
        Ok(object) => object,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };

    // An object states the size of its maps, and may state any.
    let limits = Limits {
        cpus: 2,
        map_bytes: MAP_BYTES,
    };
    let Ok(mut handlers) = Handlers::load(&object, limits) else {
        return;
    };

    handlers.maps.open_outputs(2);
    handlers.budget = BUDGET;

    // `struct bpf_perf_event_data` has 184 bytes: 21 registers, the period and the address.
    let mut event = PerfEventData::new();
    for offset in (0..184).step_by(8) {
        event.set_word(offset, 0xffff_ffff_8121_4c00 + offset as u64);
    }

    // Stacks for the helpers that read them.
    let mut env = PlainEnv {
        kernel_stack: vec![0xffff_ffff_8100_0000; 3],
        user_stack: vec![0x40_1000, 0x40_2000],
        ..PlainEnv::default()
    };

    for program in 0..handlers.programs().len().min(PROGRAMS_MAX) {
        let context = if handlers.programs()[program].is_perf_event() {
            Context::PerfEvent(&event)
        } else {
            Context::Bytes(data)
        };
        if let Err(fault) = handlers.run(program, &mut env, context) {
            assert!(!fault.to_string().is_empty());
        }
        // Otherwise what the programs print would add up.
        (env.outputs, env.printed) = (Vec::new(), Vec::new());
    }
}

//! Looks for places in a run of the emulated machine.

use super::{Direction, Target};
use std::collections::HashMap;
use unwind_sim_emulator::Core;
use unwind_sim_emulator::linux::Task;
use unwind_sim_record::reversible::{Look, Reversible};
use unwind_sim_recordings::names::{Location, demangle};
use unwind_sim_recordings::world::World;
use unwind_sim_unwind::image::{AddressSpace, Stamp};
use unwind_sim_unwind::insn::INSN_BYTES_MAX;

/// The function that is found without symbols too.
const MAIN: &str = "main";
/// The number of rsp.
const RSP: usize = 4;

pub(super) fn in_run(
    run: &mut Reversible,
    target: &Target,
    from: u64,
    direction: Direction,
) -> Option<u64> {
    let look: Box<dyn Look> = match target.clone() {
        Target::Left { tid, rsp } => Box::new(move |core: &Core, _: u64, task: Task, _: &World| {
            task.thread == tid && core.state.gpr(RSP) >= rsp
        }),
        Target::OtherThread(tid) => {
            Box::new(move |_: &Core, _: u64, task: Task, _: &World| task.thread != tid)
        }
        Target::Thread(tid) => {
            Box::new(move |_: &Core, _: u64, task: Task, _: &World| task.thread == tid)
        }
        Target::Address(address) => {
            Box::new(move |_: &Core, rip: u64, _: Task, _: &World| rip == address)
        }
        Target::Function(name) => {
            let main = if name == MAIN { run.main() } else { None };
            Box::new(Function {
                name,
                main,
                known: None,
            })
        }
        Target::Text(text) => Box::new(Text {
            text,
            stamp: None,
            known: HashMap::new(),
        }),
    };
    match direction {
        Direction::Forward => run.first(look, from),
        Direction::Backward => run.last(look, from),
    }
}

/// Looks for the first instruction of a function.
struct Function {
    name: String,
    /// The address of the first program's `main`, if that is looked for.
    main: Option<u64>,
    /// Its addresses in the mappings with this stamp.
    known: Option<(Stamp, Vec<u64>)>,
}

impl Look for Function {
    fn is_there(&mut self, _: &Core, rip: u64, task: Task, world: &World) -> bool {
        let space = world.space(task.process);
        let stamp = space.stamp();
        let addresses = match &self.known {
            Some((known, addresses)) if *known == stamp => addresses,
            _ => {
                let mut addresses = addresses_of(space, &self.name);
                if addresses.is_empty() {
                    addresses.extend(self.main);
                }
                &self.known.insert((stamp, addresses)).1
            }
        };
        addresses.contains(&rip)
    }
}

/// The addresses of the functions of this name, mangled or not.
fn addresses_of(space: &AddressSpace, name: &str) -> Vec<u64> {
    let mut all = Vec::new();
    for mapping in space.mappings() {
        let Some(image) = &mapping.image else {
            continue;
        };
        let is_it = |symbol: &str| symbol == name || demangle(symbol) == name;
        for symbol in image.symbols().iter().filter(|s| is_it(&s.name)) {
            let address = symbol.address.wrapping_add(mapping.bias);
            if mapping.range.contains(&address) {
                all.push(address);
            }
        }
    }
    all
}

/// Looks for an instruction whose text, or the name of whose function, contains a text.
struct Text {
    text: String,
    /// What is known of the addresses in the mappings with this stamp.
    stamp: Option<Stamp>,
    known: HashMap<u64, bool>,
}

impl Look for Text {
    fn is_there(&mut self, core: &Core, rip: u64, task: Task, world: &World) -> bool {
        let space = world.space(task.process);
        let stamp = space.stamp();
        if self.stamp != Some(stamp) {
            self.known.clear();
            self.stamp = Some(stamp);
        }
        let text = &self.text;
        *self.known.entry(rip).or_insert_with(|| {
            let mut bytes = [0; INSN_BYTES_MAX];
            // Less is mapped at the end of a page.
            let len = (1..=bytes.len()).rev();
            let len = len
                .into_iter()
                .find(|&len| core.memory.fetch(rip, &mut bytes[..len]).is_ok());
            let insn = len.and_then(|len| crate::disassembly::decoded(&bytes[..len], rip));
            let function = Location::at(space, rip).function;
            let has = |name: String| name.contains(text.as_str());
            insn.is_some_and(has) || function.is_some_and(has)
        })
    }
}

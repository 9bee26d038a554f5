//! Looks for places in a run of the emulated machine.

use super::machine::Stopper;
use super::{Direction, Target};
use iced_x86::InstructionInfoFactory;
use std::collections::HashMap;
use unwind_sim_emulator::Core;
use unwind_sim_emulator::linux::Task;
use unwind_sim_record::reversible::{Look, ReversibleRun};
use unwind_sim_recordings::names::{Location, demangle};
use unwind_sim_recordings::world::World;
use unwind_sim_unwind::image::{AddressSpace, Contents};
use unwind_sim_unwind::insn::INSN_BYTES_MAX;

/// The function that is found without symbols too.
const MAIN: &str = "main";
/// The number of rsp.
const RSP: usize = 4;

pub(super) fn in_run(
    run: &mut dyn ReversibleRun,
    target: &Target,
    from: u64,
    direction: Direction,
) -> Option<u64> {
    let look: Box<dyn Look> = match target.clone() {
        // The stack grows downwards: from this rsp on, the frames below it are gone.
        Target::Left { tid, rsp } => Box::new(move |core: &Core, _: u64, task: Task, _: &World| {
            task.thread == tid && core.state.gpr(RSP) >= rsp
        }),
        Target::OtherThread(tid) => {
            Box::new(move |_: &Core, _: u64, task: Task, _: &World| task.thread != tid)
        }
        Target::Thread(tid) => {
            Box::new(move |_: &Core, _: u64, task: Task, _: &World| task.thread == tid)
        }
        Target::Address(address) => Box::new(Address(address)),
        Target::Stops(stops) => Box::new(Stopper {
            stops,
            // One for all instructions: it keeps its lists.
            factory: InstructionInfoFactory::new(),
        }),
        Target::Function(name) => {
            // A stripped program has no symbol `main`, but the run may know its address.
            let main = if name == MAIN { run.main() } else { None };
            Box::new(Function {
                name,
                main,
                known: None,
            })
        }
        Target::Text(text) => Box::new(Text {
            text,
            contents: None,
            known: HashMap::new(),
        }),
    };

    match direction {
        Direction::Forward => run.first(look, from),
        Direction::Backward => run.last(look, from),
    }
}

/// Looks for an instruction.
struct Address(u64);

impl Look for Address {
    fn is_there(&mut self, _: &Core, rip: u64, _: Task, _: &World) -> bool {
        rip == self.0
    }

    fn addresses(&mut self, _: &World) -> Option<Vec<u64>> {
        Some(vec![self.0])
    }
}

/// Looks for the first instruction of a function.
struct Function {
    name: String,
    /// The address of the first program's `main`, if that is looked for.
    main: Option<u64>,
    /// Its addresses in the mappings of these contents.
    known: Option<(Contents, Vec<u64>)>,
}

impl Look for Function {
    fn is_there(&mut self, _: &Core, rip: u64, task: Task, world: &World) -> bool {
        self.in_space(world.space(task.process)).contains(&rip)
    }

    fn addresses(&mut self, world: &World) -> Option<Vec<u64>> {
        let process = world.pids().next().unwrap_or(0);
        Some(self.in_space(world.space(process)).to_vec())
    }
}

impl Function {
    /// Its addresses in what is mapped now: a library may be mapped later.
    fn in_space(&mut self, space: &AddressSpace) -> &[u64] {
        let contents = space.contents();
        if self
            .known
            .as_ref()
            .is_none_or(|(known, _)| *known != contents)
        {
            let mut addresses = addresses_of(space, &self.name);
            if addresses.is_empty() {
                addresses.extend(self.main);
            }
            self.known = Some((contents, addresses));
        }
        self.known.as_ref().map_or(&[], |(_, addresses)| addresses)
    }
}

/// The addresses of the functions of this name, mangled or not, in what is mapped.
pub fn addresses_of(space: &AddressSpace, name: &str) -> Vec<u64> {
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
    /// What is known of the addresses in the mappings of these contents.
    contents: Option<Contents>,
    known: HashMap<u64, bool>,
}

impl Look for Text {
    fn is_there(&mut self, core: &Core, rip: u64, task: Task, world: &World) -> bool {
        let space = world.space(task.process);
        let contents = space.contents();
        if self.contents != Some(contents) {
            self.known.clear();
            self.contents = Some(contents);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use unwind_sim_unwind::image::{Image, ImageParts, Mapping, Symbol};

    #[test]
    fn a_function_of_a_library_that_is_mapped_later_is_found() {
        let library = Image::new(ImageParts {
            name: "library".to_owned(),
            symbols: vec![Symbol {
                address: 0x1000,
                size: 16,
                name: "wanted".to_owned(),
            }],
            ..ImageParts::default()
        });

        let mut function = Function {
            name: "wanted".to_owned(),
            main: None,
            known: None,
        };

        let mut space = AddressSpace::new();

        // That nothing was found is only remembered for these mappings.
        assert!(function.in_space(&space).is_empty());

        space.map(Mapping {
            range: 0x7000..0x9000,
            bias: 0x6000,
            image: Some(Arc::new(library)),
            name: "library".to_owned(),
        });
        assert_eq!(function.in_space(&space), [0x7000]);
    }
}

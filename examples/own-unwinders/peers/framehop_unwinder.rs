//! framehop, samply's unwinder, as `--unwinder cmd:framehop`. The protocol is described in
//! `docs/own-unwinders.md`.

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{Error, ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder};
use object::{Object as _, ObjectSection as _};
use serde_json::{Value, json};
use std::error::Error as StdError;
use std::io::{BufRead, Lines, StdinLock, Write};
use std::ops::Range;

/// Maximum number of frames of a stack.
const FRAMES_MAX: usize = 1 << 16;

type Failure = Box<dyn StdError>;

/// Standard input and output, which carry the protocol.
struct Pipe {
    lines: Lines<StdinLock<'static>>,
}

impl Pipe {
    fn send(&self, line: &Value) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{line}")?;
        out.flush()
    }

    /// The next line; `None` at the end of the input.
    fn next(&mut self) -> Result<Option<Value>, Failure> {
        let line = self.lines.next().transpose()?;
        Ok(line.map(|line| serde_json::from_str(&line)).transpose()?)
    }

    fn ask(&mut self, line: &Value) -> Result<Value, Failure> {
        self.send(line)?;
        Ok(self.next()?.ok_or("the input ended inside of a stack")?)
    }

    fn word(&mut self, address: u64) -> Result<u64, Failure> {
        let line = json!({"type": "read", "address": format!("{address:#x}"), "length": 8});
        let answer = self.ask(&line)?;
        let bytes = answer["bytes"].as_str().ok_or("not recorded")?;
        Ok(u64::from_str_radix(bytes, 16)?.swap_bytes())
    }
}

/// A number such as `0x401000`.
fn number(value: &Value) -> Result<u64, Failure> {
    let text = value.as_str().ok_or("an address is missing")?;
    Ok(u64::from_str_radix(text.trim_start_matches("0x"), 16)?)
}

fn module(path: &str, range: Range<u64>, bias: u64) -> Result<Module<Vec<u8>>, Failure> {
    let bytes = std::fs::read(path)?;
    let file = object::File::parse(&*bytes)?;
    let section = |name| file.section_by_name(name);
    let svma = |name| section(name).map(|s| s.address()..s.address() + s.size());
    let data = |name| Some(section(name)?.data().ok()?.to_vec());
    Ok(Module::new(
        path.to_owned(),
        range,
        bias,
        ExplicitModuleSectionInfo {
            text_svma: svma(".text"),
            text: data(".text"),
            eh_frame_svma: svma(".eh_frame"),
            eh_frame: data(".eh_frame"),
            eh_frame_hdr_svma: svma(".eh_frame_hdr"),
            eh_frame_hdr: data(".eh_frame_hdr"),
            debug_frame: data(".debug_frame"),
            ..ExplicitModuleSectionInfo::default()
        },
    ))
}

/// An unwinder with the images of the stack.
fn unwinder(pipe: &mut Pipe, images: &Value) -> Result<UnwinderX86_64<Vec<u8>>, Failure> {
    let mut unwinder = UnwinderX86_64::new();
    for (index, image) in images.as_array().into_iter().flatten().enumerate() {
        let range = number(&image["start"])?..number(&image["end"])?;
        let answer = pipe.ask(&json!({"type": "image", "index": index}))?;
        if let Some(path) = answer["path"].as_str() {
            // An image that cannot be read has no table, as in a profiler.
            match module(path, range, number(&image["bias"])?) {
                Ok(module) => unwinder.add_module(module),
                Err(error) => eprintln!("{path}: {error}"),
            }
        }
    }
    Ok(unwinder)
}

fn main() -> Result<(), Failure> {
    let lines = std::io::stdin().lock().lines();
    let mut pipe = Pipe { lines };
    let mut cache = CacheX86_64::new();
    let mut last = (Value::Null, UnwinderX86_64::new());

    while let Some(stack) = pipe.next()? {
        // Reading the images takes longer than a walk, and the stacks of a recording mostly share
        // them. The cache goes with the unwinder: its rules are those of other modules.
        if stack["images"] != last.0 {
            last = (
                stack["images"].clone(),
                unwinder(&mut pipe, &stack["images"])?,
            );
            cache = CacheX86_64::new();
        }

        // A register that was not sampled is not in the list; framehop has no way to say so.
        let register = |name| stack["registers"].get(name).map_or(Ok(0), number);
        let (rip, rsp, rbp) = (register("rip")?, register("rsp")?, register("rbp")?);

        // Frames whose rsp is not above the mark are not reported.
        let mark = stack["first_frame"]
            .as_str()
            .map(|_| number(&stack["first_frame"]));
        let mark = mark.transpose()?;

        let mut regs = UnwindRegsX86_64::new(rip, rsp, rbp);
        let mut address = FrameAddress::from_instruction_pointer(rip);
        // The frame limit, unless the walk ends for another reason first.
        let mut reason = "US401";
        for _ in 0..FRAMES_MAX {
            if mark.is_none_or(|mark| regs.sp() > mark) {
                let (pc, sp) = (address.address(), regs.sp());
                let (pc, sp) = (format!("{pc:#x}"), format!("{sp:#x}"));
                pipe.send(&json!({"type": "frame", "pc": pc, "sp": sp}))?;
            }

            let mut read = |address| pipe.word(address).map_err(drop);
            let caller = last
                .1
                .unwind_frame(address, &mut regs, &mut cache, &mut read);

            reason = match caller {
                Ok(Some(pc)) => match FrameAddress::from_return_address(pc) {
                    Some(caller) => {
                        address = caller;
                        continue;
                    }
                    // `from_return_address` refuses only 0, which ends a chain.
                    None => "US001",
                },
                Ok(None) => "US001",
                Err(Error::CouldNotReadStack(_)) => "US202",
                Err(Error::FramepointerUnwindingMovedBackwards | Error::DidNotAdvance) => "US204",
                Err(_) => "US402",
            };
            break;
        }

        pipe.send(&json!({"type": "end", "reason": reason}))?;
    }
    Ok(())
}

//! Gathers what must be known about the kernel before it is recorded.

use super::machine::Machine;
use super::{GdbOptions, GdbRecordError, TraceRecorder, kaslr};
use crate::kernel::loaded;
use crate::kernel::world::KernelLayout;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use unwind_sim_recordings::import::VmcoreProblem;
use unwind_sim_recordings::kernel::KernelImage;

/// The prerequisites of a recording.
pub(super) struct RecordingSetup {
    /// KASLR offset.
    pub(super) bias: u64,
    pub(super) places: KernelLayout,
    /// Addresses of the kernel's image.
    pub(super) range: Range<u64>,
    pub(super) handlers: Vec<(u64, bool)>,
    /// Modules and generated code that could not be read.
    pub(super) problems: Vec<VmcoreProblem>,
}

/// Locates the kernel's objects and maps its code.
pub(super) fn prepare<W: Write>(
    machine: &mut Machine,
    image: &KernelImage,
    path: &Path,
    options: &GdbOptions,
    recorder: &mut TraceRecorder<'_, W>,
) -> Result<RecordingSetup, GdbRecordError> {
    // A given offset is used, and then tested like one that was found.
    let bias = match options.kaslr {
        Some(bias) => bias,
        None => kaslr::find(machine, image)?,
    };
    // With another kernel's image, every address below would be wrong.
    kaslr::is_image(machine, image, bias)?;

    let places = KernelLayout::new(image, bias)?;
    let range = loaded::map_image(recorder, path, image, bias)?;

    // Modules and generated code come and go; these are the ones of now.
    let (code, problems) = loaded::find(machine, image, bias);
    for code in code {
        loaded::map_code(recorder, code)?;
    }

    // The IDT says where exceptions and interrupts enter the kernel.
    let handlers = places.handlers(machine)?;
    Ok(RecordingSetup {
        bias,
        places,
        range,
        handlers,
        problems,
    })
}

#[cfg(test)]
mod tests {
    use super::super::record;
    use super::*;
    use crate::{At, Plan};
    use std::io::Read;
    use std::net::TcpListener;
    use unwind_sim_recordings::kernel::KernelSymbols;
    use unwind_sim_recordings::trace::{Meta, TraceWriter};

    const DESCRIPTION: &str = "l<target><reg name=\"rip\" bitsize=\"64\"/>\
        <reg name=\"eflags\" bitsize=\"32\"/><reg name=\"rsp\" bitsize=\"64\"/>\
        <reg name=\"rbp\" bitsize=\"64\"/></target>";

    fn answer(packet: &str) -> String {
        let text = match packet {
            p if p.starts_with("qSupported") => "PacketSize=1000;qXfer:features:read+",
            p if p.starts_with("qXfer") => DESCRIPTION,
            "?" => "T05thread:01;",
            "g" => &"0".repeat(56),
            "D" => "OK",
            p if p.starts_with('m') => "E14",
            _ => "",
        };
        let sum = text.bytes().fold(0_u8, |sum, b| sum.wrapping_add(b));
        format!("+${text}#{sum:02x}")
    }

    /// Serves one connection and returns the packets received.
    fn serve(listener: &TcpListener) -> Vec<String> {
        let (mut stream, _) = listener.accept().expect("a connection");
        let (mut seen, mut text, mut buffer) = (Vec::new(), String::new(), [0; 4096]);
        while let Ok(len @ 1..) = stream.read(&mut buffer) {
            text.push_str(&String::from_utf8_lossy(&buffer[..len]));
            while let Some((packet, rest)) = text.split_once('#').filter(|(_, r)| r.len() >= 2) {
                let packet = packet.rsplit('$').next().unwrap_or_default().to_owned();
                text = rest[2..].to_owned();
                if stream.write_all(answer(&packet).as_bytes()).is_err() {
                    return seen;
                }
                seen.push(packet);
            }
        }
        seen
    }

    /// An image of another kernel is reported as such, and the kernel continues to run.
    #[test]
    fn a_wrong_image_is_reported_and_the_kernel_runs_on() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let stub = listener.local_addr().expect("an address").to_string();
        let served = std::thread::spawn(move || serve(&listener));

        // An image without symbols cannot be that of any kernel.
        let image = KernelImage::of_symbols(KernelSymbols::default(), None);
        let options = GdbOptions {
            stub,
            plan: Plan {
                max_instructions: Some(1),
                max_samples: Some(1),
                ..Plan::new(At::Every(1))
            },
            hold_interrupts: false,
            kaslr: None,
        };

        let mut writer = TraceWriter::new(Vec::new(), &Meta::default()).expect("a trace");
        let mut recorder = TraceRecorder::new(&mut writer, Default::default());
        let path = Path::new("vmlinux");

        let error = record(&image, path, &options, &mut recorder).expect_err("no kernel");
        let told = error.to_string();
        assert!(
            told.contains("the image is not that of the kernel"),
            "{told}"
        );
        assert!(!told.contains("--kaslr"), "{told}");

        // `D` detaches, and lets the kernel run.
        let packets = served.join().expect("served");
        assert_eq!(packets.last().map(String::as_str), Some("D"), "{packets:?}");
    }
}

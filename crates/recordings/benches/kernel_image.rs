//! Time to open a kernel image (unpacking, ORC table, symbols), compared with the time to unpack
//! its payload with the tool that the kernel's build used, as a process that writes to a pipe.
//!
//! Run `UNWIND_SIM_KERNELS=FOLDER cargo bench -p unwind-sim-recordings --bench kernel_image`, where
//! the folder has at least one `vmlinuz-VERSION`. The goal is at most 1.5 times the tool's time.
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::kernel::{Compression, OpenOptions, open};

const FOLDER: &str = "UNWIND_SIM_KERNELS";
/// Maximum ratio of our time to the tool's time.
const GOAL: f64 = 1.5;
const ROUNDS: usize = 9;

fn main() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        println!("skipped: {FOLDER} is not set");
        return;
    };
    let entries = std::fs::read_dir(folder).expect("the folder").flatten();
    let paths = entries.map(|entry| entry.path());
    let is_image = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("vmlinuz-"))
    };
    let mut paths: Vec<PathBuf> = paths.filter(is_image).collect();
    paths.sort();
    for path in paths {
        measure(&path);
    }
}

fn measure(path: &Path) {
    let open = || {
        let file = InputFile::open(path).expect("the image");
        open(&file, &OpenOptions::default()).expect("a kernel")
    };
    let kernel = open();
    let payload = kernel.payload.as_ref().expect("it is packed");
    let Some(tool) = tool(payload.compression) else {
        println!("skipped: {}: no tool", path.display());
        return;
    };

    let size = 4.min(payload.data.len());
    // Without the trailing size, which the tools do not know: the kernel's build appends it.
    let packed = match payload.compression {
        Compression::Gzip => &payload.data[..],
        _ => &payload.data[..payload.data.len() - size],
    };

    let file = std::env::temp_dir().join(format!("unwind-sim-payload-{}", std::process::id()));
    std::fs::File::create(&file)
        .and_then(|mut file| file.write_all(packed))
        .expect("the payload is written");

    // The shortest times: whatever else runs on the machine only adds to a time.
    let (mut ours, mut theirs) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        std::hint::black_box(open());
        ours = ours.min(start.elapsed());
        let start = Instant::now();
        let bytes = unpack(tool, &file);
        theirs = theirs.min(start.elapsed());
        // Times of different work would say nothing.
        assert_eq!(bytes, kernel.size, "{tool} unpacks the same");
    }

    std::fs::remove_file(&file).expect("removed");
    let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
    let entries = kernel.image.sections().iter();
    let entries = entries.filter(|s| s.kind.as_str() == ".orc_unwind_ip");
    // Each is an address of 32 bits.
    let entries: usize = entries.map(|s| s.data.len() / 4).sum();
    println!(
        "{} ({entries} entries, {} symbols): ours {ours:.1?}, {tool} -dc {theirs:.1?}, ratio \
         {ratio:.2}, goal {GOAL}: {}",
        kernel.version.as_deref().unwrap_or("unknown"),
        kernel.symbols.len(),
        if ratio <= GOAL { "met" } else { "missed" },
    );
}

const fn tool(compression: Compression) -> Option<&'static str> {
    match compression {
        Compression::Gzip => Some("gzip"),
        Compression::Bzip2 => Some("bzip2"),
        Compression::Lzma | Compression::Xz => Some("xz"),
        Compression::Lz4 => Some("lz4"),
        Compression::Zstd => Some("zstd"),
        Compression::Lzo => Some("lzop"),
        Compression::None => None,
    }
}

/// Unpacks `file` with `tool`, reads all output and returns its length in bytes.
fn unpack(tool: &str, file: &Path) -> u64 {
    let mut child = Command::new(tool)
        .arg("-dc")
        .stdin(std::fs::File::open(file).expect("the payload"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the tool");
    let mut stdout = child.stdout.take().expect("a pipe");
    let mut buffer = vec![0; 1 << 20];
    let mut sum = 0;
    loop {
        match stdout.read(&mut buffer).expect("it can be read") {
            0 => break,
            n => sum += n as u64,
        }
    }
    assert!(child.wait().expect("it ends").success(), "{tool}");
    sum
}

//! The fields in which a run in the machine may differ from one on this computer, each with its
//! reason. All else is compared byte by byte.

/// A field that is not compared.
pub(crate) struct Field {
    /// Its name.
    pub(crate) name: &'static str,
    /// Why it may differ.
    pub(crate) reason: &'static str,
    /// Whether it is this whole file below the folder of the line, by its path and its mode.
    file: fn(&str, &str) -> bool,
    /// The output without it.
    without: fn(&str) -> String,
}

/// All fields.
pub(crate) const FIELDS: [Field; 4] = [
    Field {
        name: "git's index",
        reason: "holds times and inodes of the files",
        file: |path, _| path.ends_with(".git/index"),
        without: str::to_owned,
    },
    Field {
        name: "logs and caches of build tools",
        reason: "hold times, inodes, process numbers and the order in which jobs ended",
        file: |path, _| {
            let name = path.rsplit('/').next().unwrap_or(path);
            path.contains("CMakeFiles/")
                || path.contains("autom4te.cache/")
                || matches!(name, "config.log" | ".sconsign.dblite" | "CMakeCache.txt")
                || matches!(name, ".ninja_log" | ".ninja_deps")
        },
        without: str::to_owned,
    },
    Field {
        name: "names of sockets",
        reason: "they are in memory, since no process outside of the machine can connect",
        file: |_, mode| mode.starts_with("14"),
        without: str::to_owned,
    },
    Field {
        name: "dates",
        reason: "the machine's clock starts in 2037, so that files of today are old",
        file: |_, _| false,
        without: without_dates,
    },
];

/// The field that a whole file belongs to: its path, and its mode in octal.
pub(crate) fn of_file(path: &str, mode: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| (field.file)(path, mode))
}

/// The field without which two outputs are the same.
pub(crate) fn of_output(here: &[u8], there: &[u8]) -> Option<&'static Field> {
    let (here, there) = (
        std::str::from_utf8(here).ok()?,
        std::str::from_utf8(there).ok()?,
    );
    let is_it = |field: &&Field| (field.without)(here) == (field.without)(there);
    FIELDS.iter().find(is_it)
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Lines that are a date, as `date` prints it, and what [`without_times`] leaves of the others.
fn without_dates(text: &str) -> String {
    let is_date = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        matches!(words[..], [_, month, _, time, _, year]
            if MONTHS.contains(&month) && time.len() == 8 && year.len() == 4)
    };
    let lines = text.split('\n');
    let left = lines.map(|line| {
        if is_date(line) {
            "DATE".into()
        } else {
            without_times(line)
        }
    });
    left.collect::<Vec<String>>().join("\n")
}

/// `ls` writes `Nov 25 17:16` or, if that is long ago, `Nov 25  2026`: the part behind the day.
fn without_times(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = MONTHS.iter().filter_map(|month| rest.find(month)).min() {
        let date = &rest.as_bytes()[at..];
        let is_day = date.len() >= 12
            && date[3] == b' '
            && (date[4] == b' ' || date[4].is_ascii_digit())
            && date[5].is_ascii_digit()
            && date[6] == b' ';
        let is_time = is_day && (date[9] == b':' || date[7] == b' ');
        let digits = |range: std::ops::Range<usize>| date[range].iter().all(u8::is_ascii_digit);
        let is_date = is_time && digits(10..12) && (digits(7..9) || digits(8..12));
        let end = at + if is_date { 7 } else { 3 };
        out.push_str(&rest[..end]);
        rest = &rest[end + if is_date { 5 } else { 0 }..];
        if is_date {
            out.push_str("TIME");
        }
    }
    out + rest
}

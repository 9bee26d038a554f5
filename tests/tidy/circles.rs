//! Dependency cycles: files of a room that use each other, directly or indirectly.
//!
//! A cycle inside one folder may have a few files: together they are one module. A cycle across
//! folders hides a missing module. The test reads the paths in the text (in `use` and elsewhere)
//! that start with `crate`, `self`, `super` or the name of a child module; a re-exported name
//! counts as a use of the file that defines it. Not seen: macros, and paths through inline modules.

use crate::none;
use crate::repository::{File, files};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of files in a cycle.
const CIRCLE_MAX: usize = 8;

/// Segments of a module's path in its crate.
type Module = Vec<String>;

/// A file of a room, with its path below `src/`.
struct Source {
    path: String,
    module: Module,
    /// The paths in its text.
    uses: Vec<Path>,
}

/// A path in the text.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Path {
    segments: Vec<String>,
    /// The name that a `pub use` exports it under.
    exported_as: Option<String>,
}

/// The module path of a file.
fn module(path: &str) -> Module {
    let plain = path.trim_end_matches(".rs");
    let mut segments: Module = plain.split('/').map(str::to_owned).collect();
    if matches!(
        segments.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    ) {
        segments.pop();
    }
    segments
}

/// The code without comments and unit tests.
fn code(text: &str) -> String {
    let lines = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    let code = lines.collect::<Vec<_>>().join("\n");
    match code.find("#[cfg(test)]\nmod tests {") {
        Some(at) => code[..at].to_owned(),
        None => code,
    }
}

/// Reads the paths in a text.
struct Scanner<'a> {
    rest: &'a str,
    /// Whether the words since the last `;`, `{` or `}` start a `pub use`.
    exports: bool,
    found: Vec<Path>,
}

impl Scanner<'_> {
    fn scan(text: &str) -> Vec<Path> {
        let mut scanner = Scanner {
            rest: text,
            exports: false,
            found: Vec::new(),
        };
        // A `use` exports its names if `pub` stands between it and the last `;` or brace.
        let mut is_public = false;

        while let Some(c) = scanner.rest.chars().next() {
            if c.is_alphabetic() || c == '_' {
                let word = scanner.word();
                match word.as_str() {
                    "pub" => {
                        is_public = true;
                        scanner.skip_visibility();
                    }
                    "use" => scanner.exports = is_public,
                    // Any other word may begin a path.
                    _ => scanner.path(vec![word]),
                }
            } else {
                if matches!(c, ';' | '{' | '}') {
                    (is_public, scanner.exports) = (false, false);
                }
                scanner.rest = &scanner.rest[c.len_utf8()..];
            }
        }

        scanner.found
    }

    fn word(&mut self) -> String {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word.to_owned()
    }

    fn skip_visibility(&mut self) {
        if let Some(inside) = self.rest.strip_prefix('(') {
            self.rest = inside.split_once(')').map_or("", |(_, rest)| rest);
        }
    }

    /// Reads the rest of a path.
    fn path(&mut self, mut segments: Vec<String>) {
        while let Some(rest) = self.rest.strip_prefix("::") {
            self.rest = rest;
            if let Some(group) = self.rest.strip_prefix('{') {
                self.rest = group;
                return self.group(&segments);
            }
            match self.word() {
                word if word.is_empty() => break,
                word => segments.push(word),
            }
        }
        let mut name = segments.last().cloned().unwrap_or_default();
        if let Some(rest) = self.rest.strip_prefix(" as ") {
            self.rest = rest;
            name = self.word();
        }
        let exported_as = self.exports.then_some(name);
        self.found.push(Path {
            segments,
            exported_as,
        });
    }

    /// Reads `{a, b::c}` after `before`.
    fn group(&mut self, before: &[String]) {
        loop {
            self.rest = self.rest.trim_start_matches([' ', '\n', ',', '\t']);
            if let Some(rest) = self.rest.strip_prefix('}') {
                self.rest = rest;
                return;
            }
            let word = self.word();
            if word.is_empty() {
                return;
            }
            let mut segments = before.to_vec();
            if word != "self" {
                segments.push(word);
            }
            self.path(segments);
        }
    }
}

/// A room's files and their uses of each other.
struct House {
    sources: Vec<Source>,
    by_module: BTreeMap<Module, usize>,
    /// The origin of each name that a module re-exports.
    exports: BTreeMap<(usize, String), (usize, Option<String>)>,
}

impl House {
    fn new(files: impl Iterator<Item = (String, String)>) -> House {
        // Tests may use everything, so they make no circles.
        let is_test = |path: &str| {
            path.split('/')
                .any(|part| part == "tests" || part == "tests.rs")
        };

        let sources: Vec<Source> = files
            .filter(|(path, _)| !is_test(path))
            .map(|(path, text)| Source {
                module: module(&path),
                uses: Scanner::scan(&code(&text)),
                path,
            })
            .collect();

        let by_module = sources.iter().enumerate();
        let mut room = House {
            by_module: by_module.map(|(at, s)| (s.module.clone(), at)).collect(),
            sources,
            // Filled below: to resolve a path, the modules have to be known.
            exports: BTreeMap::new(),
        };

        // Exports need the modules to be known, so they come second.
        let mut exports = BTreeMap::new();
        for (at, source) in room.sources.iter().enumerate() {
            for path in &source.uses {
                if let (Some(name), Some(target)) = (&path.exported_as, room.resolve(at, path)) {
                    exports.insert((at, name.clone()), target);
                }
            }
        }

        room.exports = exports;
        room
    }

    /// The file and the name in it to which a path in the file `at` refers.
    fn resolve(&self, at: usize, path: &Path) -> Option<(usize, Option<String>)> {
        let mut module = self.sources[at].module.clone();
        let mut rest = path.segments.as_slice();

        match rest.first()?.as_str() {
            "crate" => (module, rest) = (Vec::new(), &rest[1..]),
            "self" => rest = &rest[1..],
            // Several in a row go up further.
            "super" => {
                while rest.first().is_some_and(|segment| segment == "super") {
                    module.pop();
                    rest = &rest[1..];
                }
            }
            first => {
                // A single name is a local one or another crate.
                if rest.len() < 2 && path.exported_as.is_none() {
                    return None;
                }
                let child = [module.as_slice(), &[first.to_owned()]].concat();
                self.by_module.get(&child)?;
            }
        }

        // As far as there are modules; the rest is a name in the last one.
        while let Some(next) = rest.first() {
            let below = [module.as_slice(), std::slice::from_ref(next)].concat();
            if !self.by_module.contains_key(&below) {
                break;
            }
            (module, rest) = (below, &rest[1..]);
        }

        Some((*self.by_module.get(&module)?, rest.first().cloned()))
    }

    fn used_by(&self, at: usize) -> BTreeSet<usize> {
        let plain = self.sources[at]
            .uses
            .iter()
            .filter(|path| path.exported_as.is_none());
        let targets = plain.filter_map(|path| {
            let mut target = self.resolve(at, path)?;
            for _ in 0..self.sources.len() {
                let Some(name) = target.1.clone() else { break };
                match self.exports.get(&(target.0, name)) {
                    Some(further) => target = further.clone(),
                    None => break,
                }
            }
            Some(target.0)
        });
        targets.filter(|&target| target != at).collect()
    }

    /// Sets of files that reach each other, by index.
    fn circles(&self) -> Vec<Vec<usize>> {
        let arrows: Vec<_> = (0..self.sources.len()).map(|at| self.used_by(at)).collect();
        let reached = |from: usize| {
            let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
            while let Some(at) = open.pop() {
                open.extend(arrows[at].iter().filter(|&&next| reached.insert(next)));
            }
            reached
        };
        let reached: Vec<_> = (0..self.sources.len()).map(reached).collect();
        let mut circles: Vec<Vec<usize>> = Vec::new();
        for at in 0..self.sources.len() {
            let mutual =
                |&other: &usize| reached[at].contains(&other) && reached[other].contains(&at);
            let circle: Vec<usize> = (0..self.sources.len()).filter(mutual).collect();
            if circle.len() > 1 && circle[0] == at {
                circles.push(circle);
            }
        }
        circles
    }

    /// The folder of a file; `x.rs` belongs to `x/` if that exists.
    fn folder(&self, at: usize) -> String {
        let path = &self.sources[at].path;
        let own = format!("{}/", path.trim_end_matches(".rs"));
        if self
            .sources
            .iter()
            .any(|other| other.path.starts_with(&own))
        {
            return own;
        }
        path.rsplit_once('/')
            .map_or(String::new(), |(folder, _)| format!("{folder}/"))
    }

    /// Cycles that are not allowed.
    fn faults(&self, room: &str) -> Vec<String> {
        let mut faults = Vec::new();
        for circle in self.circles() {
            let names: Vec<&str> = circle.iter().map(|&at| &*self.sources[at].path).collect();
            let folders: BTreeSet<String> = circle.iter().map(|&at| self.folder(at)).collect();
            let (count, names) = (names.len(), names.join(", "));
            if folders.len() > 1 {
                faults.push(format!("{room}: a cycle across folders: {names}"));
            } else if count > CIRCLE_MAX {
                faults.push(format!("{room}: a cycle of {count} files: {names}"));
            }
        }
        faults
    }
}

#[test]
fn no_circle_crosses_folders() {
    let mut rooms: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for File { path, text } in files(".rs") {
        if let Some((room, below)) = path.split_once("src/") {
            let room = rooms.entry(room.to_owned()).or_default();
            room.push((below.to_owned(), text));
        }
    }
    let faults = rooms
        .into_iter()
        .flat_map(|(room, files)| House::new(files.into_iter()).faults(&room));
    none(&faults.collect::<Vec<_>>());
}

#[test]
fn circles_are_found() {
    let room = |files: &[(&str, &str)]| {
        let files = files
            .iter()
            .map(|&(path, text)| (path.to_owned(), text.to_owned()));
        House::new(files).faults("room")
    };

    let apart = [
        ("lib.rs", "mod a;\nmod b;"),
        ("a.rs", "use crate::b::{C, D as E};"),
        ("b/mod.rs", "mod c;\npub use c::C;\npub use c::D;"),
        ("b/c.rs", "pub struct C;"),
    ];
    assert!(room(&apart).is_empty());

    // Through a name that `b` re-exports.
    let mut circle = apart;
    circle[3].1 = "pub(super) fn f() { super::super::a::g() }";
    assert_eq!(
        room(&circle),
        ["room: a cycle across folders: a.rs, b/c.rs"]
    );

    // A use in a comment or a unit test does not count.
    circle[3].1 = "// crate::a::g()\n#[cfg(test)]\nmod tests {\n    use crate::a::g;\n}";
    assert!(room(&circle).is_empty());
}

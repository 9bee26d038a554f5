//! HTML in pieces: the parts of a page that the browser unpacks.
//!
//! An *entry* is the HTML of one state, function or graph. It is a list of pieces, cut where
//! neighbouring entries start to differ. Each distinct piece is stored once, and an entry is stored
//! as its difference from the entry before it, so that a thousand states take little more space
//! than what changes in them. Both streams are compressed; `page.js` reads them.

use super::words::{clean, limited};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use maud::{Escaper, Markup};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;

/// The character between two pieces. No piece contains it: [`clean`] replaces it.
const SEPARATOR: u8 = b'\n';

/// The HTML of an entry, in pieces. Only the whole is well-formed.
#[derive(Default, Debug)]
pub(super) struct Fragment {
    pieces: Vec<String>,
}

impl Fragment {
    /// Adds a piece.
    pub(super) fn put(&mut self, markup: Markup) {
        self.tag(&markup.into_string());
    }

    /// Adds HTML as it is. For tags whose end is another piece.
    pub(super) fn tag(&mut self, html: &str) {
        if !html.is_empty() {
            self.pieces.push(clean(html));
        }
    }

    /// Adds text, escaped; of a long one the start. It is cut around distances from rsp, such as `(rsp+8)`, because they are
    /// what differs between the states of a function.
    pub(super) fn text(&mut self, text: &str) {
        let text = limited(text);
        let mut rest = &*text;
        while let Some(at) = rest.find("(rsp") {
            let (before, from) = rest.split_at(at);
            let end = from.find(')').map_or(from.len(), |end| end + 1);
            let (distance, behind) = from.split_at(end);
            self.escaped(before);
            self.escaped(distance);
            rest = behind;
        }
        self.escaped(rest);
    }

    fn escaped(&mut self, text: &str) {
        let mut html = String::new();
        // Writing to a string cannot fail.
        let _ = Escaper::new(&mut html).write_str(text);
        self.tag(&html);
    }

    /// The HTML of the whole entry.
    pub(super) fn html(&self) -> String {
        self.pieces.concat()
    }
}

/// The entries of a page.
pub(super) struct Entries {
    ids: HashMap<String, u32>,
    /// The pieces, in the order in which they were first used.
    texts: DeflateEncoder<Vec<u8>>,
    /// A line for each entry.
    lines: DeflateEncoder<Vec<u8>>,
    /// The pieces of the last entry.
    last: Vec<u32>,
}

impl Entries {
    pub(super) fn new() -> Entries {
        let encoder = || DeflateEncoder::new(Vec::new(), Compression::best());
        Entries {
            ids: HashMap::new(),
            texts: encoder(),
            lines: encoder(),
            last: Vec::new(),
        }
    }

    /// Adds an entry under a key without spaces.
    pub(super) fn add(&mut self, key: &str, fragment: &Fragment) {
        let mut ids = Vec::with_capacity(fragment.pieces.len());
        let known = self.ids.len() as u32;
        for piece in &fragment.pieces {
            let next = self.ids.len() as u32;
            let id = match self.ids.get(piece) {
                Some(&id) => id,
                None => {
                    // Writing to memory cannot fail.
                    let _ = self.texts.write_all(piece.as_bytes());
                    let _ = self.texts.write_all(&[SEPARATOR]);
                    self.ids.insert(piece.clone(), next);
                    next
                }
            };
            ids.push(id);
        }
        let line = format!("{key}{}\n", difference(&self.last, &ids, known));
        let _ = self.lines.write_all(line.as_bytes());
        self.last = ids;
    }

    /// The size of the entries so far in the page, in bytes, without what the compressor still
    /// holds back.
    pub(super) fn bytes(&self) -> usize {
        (self.texts.get_ref().len() + self.lines.get_ref().len()).div_ceil(3) * 4
    }

    /// The pieces and the entries, compressed (RFC 1951) and in base64.
    pub(super) fn finish(self) -> [String; 2] {
        [self.texts, self.lines].map(|stream| {
            // Writing to memory cannot fail.
            STANDARD.encode(stream.finish().unwrap_or_default())
        })
    }
}

/// How `ids` differs from `last`, as words with a space before each:
///
/// - `D:N`: `N` pieces of the last entry, `D` behind the end of the words' last such run;
/// - `+N`: `N` pieces that are used for the first time;
/// - `=I`: piece `I`.
fn difference(last: &[u32], ids: &[u32], mut known: u32) -> String {
    // A piece may be in the last entry more than once.
    let mut places: HashMap<u32, Vec<usize>> = HashMap::new();
    for (place, &id) in last.iter().enumerate() {
        places.entry(id).or_default().push(place);
    }
    let mut out = String::new();

    let mut cursor = 0;
    let mut at = 0;

    // Three kinds of words, tried from the cheapest: new pieces need only a count, known ones a
    // place.
    while at < ids.len() {
        // Pieces that are new got their numbers one after the other.
        let fresh = (at..ids.len()).take_while(|&i| ids[i] == known + (i - at) as u32);
        let fresh = fresh.count();
        if fresh > 0 {
            let _ = write!(out, " +{fresh}");
            known += fresh as u32;
            at += fresh;
            continue;
        }

        // A run goes on as long as both entries agree, so most entries are a few words.
        let run = |place: usize| {
            let pairs = last[place..].iter().zip(&ids[at..]);
            pairs.take_while(|(a, b)| a == b).count()
        };

        let found = places.get(&ids[at]).and_then(|places| {
            // The next one, or else the first.
            let next = places.partition_point(|&place| place < cursor);
            places.get(next).or(places.first()).copied()
        });

        match found {
            Some(place) => {
                // The distance is counted from the end of the last run: it is mostly 0 and
                // compresses well.
                let len = run(place);
                let _ = write!(out, " {}:{len}", place as i64 - cursor as i64);
                cursor = place + len;
                at += len;
            }
            None => {
                let _ = write!(out, " ={}", ids[at]);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use std::io::Read;

    /// Reads the entries as `page.js` does.
    fn unpack(packed: [String; 2]) -> Vec<(String, String)> {
        // The text is base64 of a raw deflate stream, which the browser's `DecompressionStream`
        // reads.
        let [texts, lines] = packed.map(|text| {
            let bytes = STANDARD.decode(text).expect("base64");
            let mut text = String::new();
            flate2::read::DeflateDecoder::new(&bytes[..])
                .read_to_string(&mut text)
                .expect("compressed text");
            text
        });

        // The numbers of pieces are not stored: they are positions in the stream.
        let texts: Vec<&str> = texts.split('\n').collect();
        let (mut last, mut known) = (Vec::<usize>::new(), 0);
        let mut out = Vec::new();
        for line in lines.lines() {
            let mut words = line.split(' ');
            let key = words.next().expect("a key").to_owned();
            let (mut ids, mut cursor) = (Vec::new(), 0_i64);

            // The three kinds of words that `difference` writes.
            for word in words {
                if let Some(n) = word.strip_prefix('+') {
                    let n: usize = n.parse().expect("a number");
                    ids.extend(known..known + n);
                    known += n;
                } else if let Some(id) = word.strip_prefix('=') {
                    ids.push(id.parse().expect("a number"));
                } else {
                    let (d, n) = word.split_once(':').expect("a run");
                    let from = cursor + d.parse::<i64>().expect("a number");
                    cursor = from + n.parse::<i64>().expect("a number");
                    ids.extend_from_slice(&last[from as usize..cursor as usize]);
                }
            }

            out.push((key, ids.iter().map(|&id| texts[id]).collect()));
            last = ids;
        }
        out
    }

    #[test]
    fn entries_are_read_back() {
        // The same entries in every run, so that a failure can be repeated.
        let mut random = Random::new(1);

        // Entries that differ a little from the one before, as states of a run do.
        let mut entries = Entries::new();
        let mut wanted = Vec::new();
        let mut words: Vec<u64> = (0..30).collect();

        for number in 0..200 {
            for _ in 0..random.below(4) {
                let at = random.below(words.len());
                match random.below(3) {
                    0 => words[at] = random.below_u64(1000),
                    1 => words.insert(at, random.below_u64(50)),
                    _ => drop(words.remove(at)),
                }
            }

            let mut fragment = Fragment::default();
            for word in &words {
                fragment.text(&format!("<{word} (rsp+{word}) & more"));
            }

            // What is packed is HTML that was already escaped.
            assert!(fragment.html().contains("&lt;"));
            entries.add(&number.to_string(), &fragment);
            wanted.push((number.to_string(), fragment.html()));
        }

        assert_eq!(unpack(entries.finish()), wanted);
    }

    #[test]
    fn what_repeats_takes_no_space() {
        let mut entries = Entries::new();
        for number in 0..1000 {
            let mut fragment = Fragment::default();
            fragment.text("at the top: ");
            fragment.text(&number.to_string());
            for frame in 0..200 {
                fragment.text(&format!("frame {frame} of the stack"));
            }
            entries.add(&number.to_string(), &fragment);
        }
        let bytes: usize = entries.finish().iter().map(String::len).sum();
        assert!(bytes < 10_000, "{bytes}");
    }
}

//! Paths, resolved component by component from the root of the process, so that neither `..` nor a
//! symbolic link leads out of it.
//!
//! Source: Linux 6.12 `fs/namei.c`.

use super::open::Opened;
use super::special::Special;
use super::{
    Answer, Attributes, Errno, Files, NAME_MAX, Node, PATH_MAX, ResolvedPath, SYMLINKS_MAX,
    components, join, parent, special,
};

impl Files {
    /// Resolves a path that starts in the directory `base`. The last component need not exist; if
    /// it is a symbolic link, it is followed only if `follow`.
    ///
    /// # Errors
    /// Like Linux' `path_lookupat`.
    pub(in crate::linux) fn resolve(
        &self,
        base: &[u8],
        path: &[u8],
        follow: bool,
    ) -> Answer<ResolvedPath> {
        self.resolve_below(&self.own.root, base, path, follow)
    }

    /// Resolves a path for a process with this root.
    fn resolve_below(
        &self,
        root: &[u8],
        base: &[u8],
        path: &[u8],
        follow: bool,
    ) -> Answer<ResolvedPath> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        if path.len() >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }

        let mut at = match path.first() {
            Some(b'/') => root.to_vec(),
            _ => base.to_vec(),
        };
        let mut node = self.node(&at);
        let mut todo: Vec<Vec<u8>> = components(path);
        let wants_directory = path.ends_with(b"/");
        let mut links = 0;

        // Each component needs the permission to search its folder (path_resolution(7)).
        while let Some(name) = todo.pop() {
            match &node {
                Node::Missing => {
                    // The whole path is noted, not only as far as it leads.
                    let rest = todo.iter().rev().map(|name| &name[..]);
                    let all = [&at[..], &name].into_iter().chain(rest);
                    self.note_missing(&all.collect::<Vec<_>>().join(&b'/'));
                    return Err(Errno::ENOENT);
                }
                Node::Refused => return Err(Errno::EACCES),
                node if !node.is_directory() => return Err(Errno::ENOTDIR),
                node if !self.may_search(&at, node) => return Err(Errno::EACCES),
                _ => {}
            }

            match &name[..] {
                b"." => continue,
                // The root is its own parent.
                b".." if at == root => continue,
                b".." => {
                    at = parent(&at).to_vec();
                    node = self.node(&at);
                    continue;
                }
                name if name.len() > NAME_MAX => return Err(Errno::ENAMETOOLONG),
                _ => {}
            }

            let next = join(&at, &name);
            let found = self.node(&next);
            // `link/` is what the link leads to.
            let last = todo.is_empty() && !wants_directory;
            match found.link(self, &next) {
                Some(target) if !last || follow => {
                    links += 1;
                    // Links that lead to each other would never end.
                    if links > SYMLINKS_MAX {
                        return Err(Errno::ELOOP);
                    }
                    // These lead to the open file itself, whatever their text says.
                    match self.opened_already(&next) {
                        Some(Ok(Opened::Stream(open))) => {
                            (at, node) = (next, Node::Open(open));
                            continue;
                        }
                        Some(Ok(Opened::File(resolved))) => {
                            (at, node) = (resolved.path, resolved.node);
                            continue;
                        }
                        _ => {}
                    }

                    let target = target?;

                    // The files behind `ns/` have no path of their own.
                    if let Some(number) = special::namespace(&target)
                        && special::of_process(&next).is_some()
                    {
                        (at, node) = (target, Node::Special(Special::Namespace(number)));
                        continue;
                    }

                    // These too: outside of another root, their text leads elsewhere.
                    if special::is_magic(&next) {
                        node = self.node(&target);
                        at = target;
                        continue;
                    }

                    if target.starts_with(b"/") {
                        at = root.to_vec();
                    }

                    node = self.node(&at);
                    todo.extend(components(&target));
                    // Each link can make the rest longer: without a bound it would fill the memory.
                    if todo.len() > PATH_MAX {
                        return Err(Errno::ENAMETOOLONG);
                    }
                }
                _ => (at, node) = (next, found),
            }
        }

        if matches!(node, Node::Refused) {
            return Err(Errno::EACCES);
        }

        let is_missing = matches!(node, Node::Missing);
        if is_missing {
            self.note_missing(&at);
        }

        if wants_directory && !is_missing && !node.is_directory() {
            return Err(Errno::ENOTDIR);
        }

        Ok(ResolvedPath { path: at, node })
    }

    /// Remembers that there is nothing at a path where every Linux has something.
    fn note_missing(&self, path: &[u8]) {
        if let Some(what) = special::not_modelled(self, path) {
            self.missed.set(Some(what));
        }
    }

    /// What was missing since the last call, although every Linux has it.
    pub(in crate::linux) fn take_missed(&self) -> Option<&'static str> {
        self.missed.take()
    }

    fn may_search(&self, path: &[u8], node: &Node) -> bool {
        let attributes = match node {
            Node::Special(_) => return true,
            Node::Host(metadata) => Attributes::of_host(metadata, self.owners),
            Node::Memory(inode) => Attributes::of_inode(&inode.borrow()),
            Node::Missing | Node::Open(_) | Node::Refused => return false,
        };
        debug_assert!(path.starts_with(b"/"));
        self.allows(&attributes, 1)
    }

    /// Like [`Files::resolve`], for a file that must exist.
    pub(in crate::linux) fn find(
        &self,
        base: &[u8],
        path: &[u8],
        follow: bool,
    ) -> Answer<ResolvedPath> {
        let resolved = self.resolve(base, path, follow)?;
        match resolved.node {
            Node::Missing => Err(Errno::ENOENT),
            _ => Ok(resolved),
        }
    }

    /// Like [`Files::find`], of a path that the kernel knows: it begins at the machine's root, whatever
    /// that of the process is.
    pub(in crate::linux) fn find_known(&self, path: &[u8], follow: bool) -> Answer<ResolvedPath> {
        let resolved = self.resolve_below(b"/", b"/", path, follow)?;
        match resolved.node {
            Node::Missing => Err(Errno::ENOENT),
            _ => Ok(resolved),
        }
    }
}

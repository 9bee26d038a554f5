//! Programs of a scenario that come from object files. Whoever runs the scenario reads the files
//! and supplies them.

use super::error::{ScenarioError, ScenarioErrorKind};
use super::{HANDLERS, LineWords, Reader, Scenario, error_at};
use crate::bpf::{Handlers, Limits, Object};
use crate::programs::{BUILT_IN, ObjectRequest, Program};

/// The longest object file, bytes.
pub const OBJECT_BYTES_MAX: usize = 1 << 22;
/// The most bytes that the maps of one object may need.
const MAP_BYTES_MAX: u64 = 1 << 26;
/// The most handlers that a scenario may name.
const HANDLERS_MAX: usize = 16;

impl Scenario {
    /// The requests of handlers from object files. All must be supplied before the scenario runs.
    pub fn objects(&self) -> &[ObjectRequest] {
        &self.schedule.programs
    }

    /// Supplies the object file of a request.
    ///
    /// # Errors
    /// If it is not an object file, has no such program, or its programs cannot be loaded.
    pub fn supply_object(&mut self, request: usize, bytes: &[u8]) -> Result<(), ScenarioError> {
        let cpus = u32::from(self.schedule.setup.cpus);
        let Some(request) = self.schedule.programs.get_mut(request) else {
            return Ok(());
        };
        let limits = Limits {
            cpus,
            map_bytes: MAP_BYTES_MAX,
        };
        let loaded = if bytes.len() <= OBJECT_BYTES_MAX {
            load(request, bytes, limits)
        } else {
            Err(ScenarioErrorKind::TooMany("bytes"))
        };
        request.loaded = Some(loaded.map_err(|kind| error_at(request.line, kind))?);
        Ok(())
    }
}

fn load(
    request: &ObjectRequest,
    bytes: &[u8],
    limits: Limits,
) -> Result<Program, ScenarioErrorKind> {
    let object = Object::parse(bytes).map_err(ScenarioErrorKind::Object)?;
    let handlers = Handlers::load(&object, limits).map_err(ScenarioErrorKind::Load)?;
    let wanted = request.program.as_deref();
    let mut programs = handlers.programs().iter();
    let found = programs.position(|program| {
        program.is_perf_event() && wanted.is_none_or(|wanted| wanted == program.name)
    });
    let index = found.ok_or(ScenarioErrorKind::Missing(
        "a program for perf events of this name",
    ))?;
    Ok(Program::new(&request.name, handlers, index, request.walks))
}

impl Reader {
    /// `handler NAME FILE [PROGRAM]`, or `walker ..`
    pub(super) fn handler(
        &mut self,
        words: &mut LineWords<'_>,
        walks: bool,
    ) -> Result<(), ScenarioError> {
        let name = words.need("a name")?;
        // `install` takes this word for the removal of a handler.
        if name == "none" || self.find_handler(name).is_some() {
            return Err(words.error(ScenarioErrorKind::Taken("handler")));
        }

        if self.scenario.schedule.programs.len() >= HANDLERS_MAX {
            return Err(words.error(ScenarioErrorKind::TooMany("handlers")));
        }

        let name = name.to_owned();
        let path = words.need("an object file")?.to_owned();
        let program = words.next().map(str::to_owned);

        // Only the request: files are opened by the caller, who supplies what is in them.
        self.scenario.schedule.programs.push(ObjectRequest {
            line: words.line,
            name,
            path,
            walks,
            program,
            loaded: None,
        });
        Ok(())
    }

    /// The number of the handler of that name.
    pub(super) fn find_handler(&self, name: &str) -> Option<u16> {
        let own = self.scenario.schedule.programs.iter();
        let mut all = HANDLERS
            .iter()
            .chain(&BUILT_IN)
            .copied()
            .chain(own.map(|request| request.name.as_str()));
        all.position(|known| known == name).map(|at| at as u16 + 1)
    }
}

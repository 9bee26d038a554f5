//! The terminal of the stepper: keys and mouse in, screens out. It is left as it was found, also
//! after a panic or a signal that ends the process, and while the process is stopped.

use super::screen::draw;
use super::{Key, Stepper};
use base64::Engine as _;
use ratatui::crossterm::cursor::{MoveTo, RestorePosition, SavePosition};
use ratatui::crossterm::event::{
    self, DisableMouseCapture, EnableMouseCapture, Event, KeyCode, KeyEvent, KeyEventKind,
    KeyModifiers, MouseButton, MouseEventKind,
};
use ratatui::crossterm::execute;
use ratatui::crossterm::style::Print;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, disable_raw_mode, enable_raw_mode, window_size,
};
use std::io::stdout;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use unwind_sim_judge::input::InputError;

/// The time after which a long way says that it is one.
const LONG: Duration = Duration::from_millis(400);
/// The time between looks at signals, and at the progress of the index.
const TICK: Duration = Duration::from_millis(100);

/// Why the stepper ended.
#[derive(Debug, thiserror::Error)]
pub enum TerminalError {
    /// The terminal cannot be used.
    #[error("the terminal: {0}")]
    Terminal(#[from] std::io::Error),
    /// The recording cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
}

/// The job control of this process.
#[derive(Clone, Copy, Debug)]
pub struct Jobs {
    /// Becomes true when a signal asks to stop.
    pub asked: &'static AtomicBool,
    /// Becomes true when this process was stopped and goes on.
    pub continued: &'static AtomicBool,
    /// Stops this process until it is continued.
    pub suspend: fn(),
}

/// What a session has besides the stepper.
#[derive(Debug)]
pub struct SessionOptions<'a> {
    /// Whether the screen has colours.
    pub colour: bool,
    /// Ends long ways: that of the states.
    pub stop: &'a Arc<AtomicBool>,
    /// Becomes true when a signal wants the end.
    pub ended: &'static AtomicBool,
    /// Job control, where there is any.
    pub jobs: Option<Jobs>,
    /// Go to the first finding before the first key.
    pub opens_at_finding: bool,
}

/// Something from outside.
enum TerminalEvent {
    Event(Event),
    /// The terminal is gone, or a signal wants the end.
    End,
}

/// What the thread that reads keys shares with the one that draws.
#[derive(Default)]
struct SharedState {
    /// Since when the drawing thread has been busy.
    busy: Mutex<Option<Instant>>,
    /// The reading thread has written to the screen.
    is_soiled: AtomicBool,
    /// The reading thread is to end.
    is_over: AtomicBool,
}

/// Lends the terminal to `inside`, and takes it back, also if it panics.
///
/// # Errors
/// If the terminal cannot be used, or `inside` fails.
pub fn lend<T, E: From<std::io::Error>>(
    inside: impl FnOnce(&mut ratatui::DefaultTerminal) -> Result<T, E>,
) -> Result<T, E> {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let _ = execute!(stdout(), DisableMouseCapture);
        before(info);
    }));
    // Its own hook restores the terminal, and then calls the one above.
    let mut terminal = ratatui::try_init()?;
    execute!(stdout(), EnableMouseCapture)?;
    let done = inside(&mut terminal);
    let _ = execute!(stdout(), DisableMouseCapture);
    ratatui::try_restore()?;
    done
}

/// Lets the user step until he quits.
///
/// # Errors
/// If the terminal cannot be used, or the recording cannot be read.
pub fn interact(
    stepper: &mut Stepper<'_>,
    options: &SessionOptions<'_>,
) -> Result<(), TerminalError> {
    lend(|terminal| {
        let shared = Arc::new(SharedState::default());
        let (sender, receiver) = channel();
        let (theirs, stop_it) = (shared.clone(), options.stop.clone());
        let ended = options.ended;
        let reader = std::thread::spawn(move || read_events(&sender, &theirs, &stop_it, ended));
        let mut session = Session {
            terminal,
            stepper,
            options,
            shared: &shared,
        };
        let done = session.run(&receiver);

        // What an editor is to read must not be read here. The reader of a terminal that is gone may never
        // end.
        if stepper.wants_edit() {
            shared.is_over.store(true, Ordering::Relaxed);
            let _ = reader.join();
        }
        done
    })
}

struct Session<'t, 's> {
    terminal: &'t mut ratatui::DefaultTerminal,
    stepper: &'t mut Stepper<'s>,
    options: &'t SessionOptions<'t>,
    shared: &'t SharedState,
}

impl Session<'_, '_> {
    fn run(&mut self, events: &Receiver<TerminalEvent>) -> Result<(), TerminalError> {
        self.draw()?;
        if self.options.opens_at_finding {
            // It may be a long way, which Escape stops like any other.
            self.busy(|session| Ok(session.stepper.open_at_finding()?))?;
            self.draw()?;
        }
        let mut drawn = Instant::now();
        let mut is_working = true;

        while !self.stepper.is_done() {
            self.obey_job_control()?;

            // Work fills the time in which nothing happens.
            let wait = if is_working { Duration::ZERO } else { TICK };
            match events.recv_timeout(wait) {
                Ok(TerminalEvent::Event(event)) => {
                    self.take(&event)?;
                    // Keys that are waiting are done before the screen is drawn.
                    while let Ok(happened) = events.try_recv() {
                        match happened {
                            TerminalEvent::Event(event) => self.take(&event)?,
                            TerminalEvent::End => return Ok(()),
                        }
                        if self.stepper.is_done() {
                            return Ok(());
                        }
                    }
                    self.draw()?;
                    drawn = Instant::now();
                }
                Ok(TerminalEvent::End) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) if is_working => {
                    // A piece of work is short, so a key never waits for more than that.
                    is_working = self.stepper.work()?;

                    // Progress is drawn at most once a tick: drawing each piece would slow the work
                    // down.
                    if drawn.elapsed() > TICK || !is_working {
                        self.draw()?;
                        drawn = Instant::now();
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    // The thread that reads keys cannot tell: once the terminal is gone, crossterm
                    // 0.29 reads its end for ever.
                    let is_gone = window_size().is_err();
                    if is_gone || self.options.ended.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, event: &Event) -> Result<(), TerminalError> {
        if is_suspend(event) {
            return Ok(self.suspend()?);
        }

        self.busy(|session| {
            let stepper = &mut *session.stepper;
            match event {
                Event::Key(key) => key_of(key).map_or(Ok(()), |key| stepper.press(key))?,
                Event::Mouse(mouse) => match mouse.kind {
                    MouseEventKind::Down(MouseButton::Left) => {
                        stepper.mouse(mouse.column, mouse.row, 0)?;
                    }
                    // Three lines for each notch of the wheel.
                    MouseEventKind::ScrollUp => stepper.mouse(mouse.column, mouse.row, -3)?,
                    MouseEventKind::ScrollDown => stepper.mouse(mouse.column, mouse.row, 3)?,
                    _ => {}
                },
                _ => {}
            }
            Ok(())
        })?;

        if let Some(text) = self.stepper.take_copied() {
            copy(&text)?;
        }
        Ok(())
    }

    /// Does what may be a long way, which Escape stops.
    fn busy(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), TerminalError>,
    ) -> Result<(), TerminalError> {
        let stop = self.options.stop;
        stop.store(false, Ordering::Relaxed);
        *lock(&self.shared.busy) = Some(Instant::now());
        let done = work(self);
        *lock(&self.shared.busy) = None;
        stop.store(false, Ordering::Relaxed);
        done
    }

    /// Stops if a signal asks for it, and draws everything if this process was stopped and goes on.
    fn obey_job_control(&mut self) -> Result<(), std::io::Error> {
        let Some(jobs) = self.options.jobs else {
            return Ok(());
        };
        if jobs.asked.swap(false, Ordering::Relaxed) {
            self.suspend()?;
        }
        if jobs.continued.swap(false, Ordering::Relaxed) {
            self.reclaim()?;
        }
        Ok(())
    }

    /// Gives the terminal back, and stops this process until it is continued.
    fn suspend(&mut self) -> Result<(), std::io::Error> {
        let Some(jobs) = self.options.jobs else {
            self.stepper.say("this build cannot be suspended");
            return Ok(());
        };
        execute!(stdout(), DisableMouseCapture)?;
        self.terminal.show_cursor()?;
        ratatui::try_restore()?;

        (jobs.suspend)();

        jobs.continued.store(false, Ordering::Relaxed);
        self.reclaim()
    }

    /// Takes the terminal after this process was stopped, and draws everything anew. Whoever had the
    /// terminal may have changed its mode.
    fn reclaim(&mut self) -> Result<(), std::io::Error> {
        // Without this, crossterm believes that the terminal is still as it left it.
        let _ = disable_raw_mode();
        enable_raw_mode()?;
        execute!(stdout(), EnterAlternateScreen, EnableMouseCapture)?;
        self.terminal.clear()?;
        self.draw()
    }

    fn draw(&mut self) -> Result<(), std::io::Error> {
        if self.shared.is_soiled.swap(false, Ordering::Relaxed) {
            self.terminal.clear()?;
        }
        let (stepper, colour) = (&*self.stepper, self.options.colour);
        self.terminal.draw(|frame| draw(stepper, frame, colour))?;
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads events until the terminal or the other thread is gone. Escape and Ctrl-C stop what the
/// other thread is busy with.
fn read_events(
    sender: &Sender<TerminalEvent>,
    shared: &SharedState,
    stop: &AtomicBool,
    ended: &AtomicBool,
) {
    loop {
        if shared.is_over.load(Ordering::Relaxed) {
            return;
        }
        if ended.load(Ordering::Relaxed) {
            // The process is to end: the drawing thread may be in the midst of work, and must stop
            // it.
            stop.store(true, Ordering::Relaxed);
            let _ = sender.send(TerminalEvent::End);
            return;
        }

        // The wait is bounded, so that the end and the other thread's state are seen in time.
        match event::poll(TICK) {
            Ok(false) => tell_busy(shared),
            Ok(true) => {
                let Ok(event) = event::read() else {
                    break;
                };
                // Keys wait while the other thread works, but Escape must end that work.
                let is_busy = lock(&shared.busy).is_some_and(|since| since.elapsed() > LONG);
                if is_busy && is_suspend(&event) {
                    // What runs ends early, so that the other thread sees the key.
                    stop.store(true, Ordering::Relaxed);
                }
                if is_busy && is_stop(&event) {
                    stop.store(true, Ordering::Relaxed);
                } else if sender.send(TerminalEvent::Event(event)).is_err() {
                    return;
                }
            }
            Err(_) => break,
        }
    }

    // The other thread may be busy, and would not see the end before its work is done.
    stop.store(true, Ordering::Relaxed);
    let _ = sender.send(TerminalEvent::End);
}

/// Says in the last line that the other thread, which does not draw now, is busy.
fn tell_busy(shared: &SharedState) {
    let busy = lock(&shared.busy);
    let is_long = busy.is_some_and(|since| since.elapsed() > LONG);
    if !is_long || shared.is_soiled.swap(true, Ordering::Relaxed) {
        return;
    }
    let (_, rows) = ratatui::crossterm::terminal::size().unwrap_or((80, 24));
    let _ = execute!(
        stdout(),
        SavePosition,
        MoveTo(0, rows.saturating_sub(1)),
        Clear(ClearType::CurrentLine),
        Print("on the way; Escape stops"),
        RestorePosition
    );
}

/// Whether it is Ctrl-Z, which in raw mode is a key and not a signal.
fn is_suspend(event: &Event) -> bool {
    match event {
        Event::Key(key) => {
            key.kind != KeyEventKind::Release
                && key.code == KeyCode::Char('z')
                && key.modifiers.contains(KeyModifiers::CONTROL)
        }
        _ => false,
    }
}

fn is_stop(event: &Event) -> bool {
    match event {
        Event::Key(key) => {
            key.code == KeyCode::Esc
                || key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL)
        }
        _ => false,
    }
}

fn key_of(key: &KeyEvent) -> Option<Key> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    Some(match key.code {
        KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => Key::Char('q'),
        KeyCode::Char(_) if key.modifiers.contains(KeyModifiers::CONTROL) => return None,
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Tab => Key::Tab,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        _ => return None,
    })
}

/// Puts text into the clipboard, if the terminal can (OSC 52 of xterm's control sequences).
fn copy(text: &str) -> std::io::Result<()> {
    let encoded = base64::engine::general_purpose::STANDARD.encode(text);
    execute!(stdout(), Print(format!("\x1b]52;c;{encoded}\x07")))
}

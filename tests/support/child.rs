//! Child processes: the test binary itself, started for one of its ignored tests.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// What marks the lines that a child means for its parent, among those of the test harness.
const MARK: &str = "child: ";

/// A running child. It is killed when it is dropped.
pub struct Process {
    child: Child,
    input: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts this binary for its ignored test `name`, with `task` for it to read.
    pub fn start(name: &str, task: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", name, "--nocapture"])
            .env("CHILD_TASK", task)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take(),
            lines: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
        }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What the child says next; None when it has ended.
    pub fn hear(&mut self) -> Option<String> {
        self.lines.find_map(|line| {
            let line = line.ok()?;
            let (_, said) = line.split_once(MARK)?;
            Some(said.to_owned())
        })
    }

    /// Says a line to the child.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Kills it with SIGKILL and answers what it said that was not heard yet.
    pub fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::iter::from_fn(|| self.hear()).collect()
    }

    /// Lets it go on to its end, and waits for it.
    pub fn finish(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a child: what it was started for.
pub fn task() -> String {
    std::env::var("CHILD_TASK").expect("a test starts this as a child process")
}

/// In a child: says a line to the parent.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{MARK}{line}").unwrap();
    out.flush().unwrap();
}

/// In a child: waits for a line of the parent; None when there will be no more.
pub fn listen() -> Option<String> {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line).unwrap();
    (read > 0).then(|| line.trim_end().to_owned())
}

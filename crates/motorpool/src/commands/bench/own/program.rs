//! Programs that run beside the measurement, below a keeper each.
use super::super::{
    BenchError,
    way::{Question, Way},
};
use crate::process::{Job, ProcessError};
use std::{
    ffi::OsString,
    io,
    net::{Ipv4Addr, TcpListener},
    path::Path,
    time::Duration,
};
use tokio::{sync::mpsc, task::JoinHandle};

const READY_WITHIN: Duration = Duration::from_mins(1);
const ENDS_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A program that runs. Dropped, it is killed with all it has started.
#[derive(Debug)]
pub(crate) struct Running {
    name: String,
    task: JoinHandle<Result<(), ProcessError>>,
    lines: mpsc::UnboundedReceiver<String>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Running {
    /// Starts it in `folder`.
    pub(crate) fn start(program: &Path, arguments: &[OsString], folder: &Path) -> Result<Self, BenchError> {
        let program = std::path::absolute(program).map_err(BenchError::Prepare)?;
        let job = Job::new(&program, arguments, folder)
            .without_env("XDG_RUNTIME_DIR")
            .with_env("XDG_DATA_HOME", folder)
            .with_env("XDG_CONFIG_HOME", folder);
        let (heard, lines) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            job.run(&mut |line: &str| {
                let _ = heard.send(line.to_owned());
            })
            .await
        });
        Ok(Self { name: program.display().to_string(), task, lines })
    }

    /// Waits until it has ended, and no longer than a program that was asked to may take.
    pub(crate) async fn ended(mut self) {
        let _ = tokio::time::timeout(ENDS_WITHIN, &mut self.task).await;
    }

    /// What it says behind `before`, once it says it.
    pub(crate) async fn says(&mut self, before: &str) -> Result<String, BenchError> {
        let heard = async {
            let mut last = String::new();
            while let Some(line) = self.lines.recv().await {
                if let Some((_, rest)) = line.split_once(before) {
                    return Ok(rest.to_owned());
                }
                last = line;
            }
            Err(BenchError::Ended(last))
        };
        tokio::time::timeout(READY_WITHIN, heard).await.map_err(|_| BenchError::Late(self.name.clone()))?
    }

    /// Returns as soon as `way` has begun to answer `question`.
    pub(crate) async fn until_it_answers(&self, way: &Way, question: &Question) -> Result<(), BenchError> {
        let request = way.request(question);
        let answered = async {
            loop {
                if let Ok(mut line) = way.connect().await
                    && line.begin(&request).await.is_ok()
                {
                    return;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::time::timeout(READY_WITHIN, answered).await.map_err(|_| BenchError::Late(self.name.clone()))
    }
}

/// A port that nobody had just now.
pub(crate) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

//! Tasks of one core.

/// Runs hyper's tasks on the core whose connection made them.
#[derive(Clone, Copy, Debug)]
pub struct LocalExecutor;

impl<F> hyper::rt::Executor<F> for LocalExecutor
where
    F: Future + 'static,
    F::Output: 'static,
{
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}

/// A thread's own runtime.
pub fn runtime() -> std::io::Result<tokio::runtime::LocalRuntime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build_local(tokio::runtime::LocalOptions::default())
}

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

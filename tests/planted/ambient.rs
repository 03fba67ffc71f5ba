//! Ways to keep the context of a run where code finds it that was not given it. `tests/it/tidy` finds each of the marked
//! lines by its name, whatever the type is called.

type Current = LazyLock<Mutex<Option<RunContext>>>;

static LOCKED: Mutex<Option<RunContext>> = Mutex::new(None); //~ LOCKED
pub(crate) static SHARED: std::sync::RwLock<Vec<RunContext>> = std::sync::RwLock::new(Vec::new()); //~ SHARED
static LAZY: LazyLock<Mutex<RunContext>> = LazyLock::new(context); //~ LAZY
static mut BARE: Option<RunContext> = None; //~ BARE
static RENAMED: Current = LazyLock::new(Mutex::default); //~ RENAMED
static //~ BROKEN
    BROKEN: tokio::sync::OnceCell<RunContext> = tokio::sync::OnceCell::const_new();

thread_local! {
    static OF_THREAD: RefCell<Option<RunContext>> = const { RefCell::new(None) }; //~ OF_THREAD
}

tokio::task_local! {
    pub static OF_TASK: RunContext; //~ OF_TASK
}

lazy_static::lazy_static! {
    static ref OF_MACRO: Mutex<RunContext> = Mutex::new(context()); //~ OF_MACRO
}

fn inside() -> &'static RunContext {
    static ONCE: OnceLock<RunContext> = OnceLock::new(); //~ ONCE
    const NAME: &'static str = "static text";
    ONCE.get_or_init(context)
}

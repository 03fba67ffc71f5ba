//! Handlers as the router takes them: of one type.
//!
//! A handler's type contains its future's, and axum's layers ask of each such type again and again whether it is
//! `Send`, down to the last statement that the handler waits for. Erased, they ask once: a quarter of the compiler's
//! time.

use std::{future::Future, pin::Pin};

use axum::{extract::Request, response::Response};

use super::Server;

type Answer = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A handler whose type was erased.
#[derive(Clone, Copy)]
pub(super) struct Handler(&'static (dyn Fn(Request, Server) -> Answer + Send + Sync));

impl Handler {
    /// Of a function, which has no size, so that nothing is left behind.
    pub(super) fn of<H: axum::handler::Handler<T, Server>, T>(handler: H) -> Self {
        const { assert!(size_of::<H>() == 0) };
        Self(Box::leak(Box::new(move |request, server| -> Answer { Box::pin(handler.clone().call(request, server)) })))
    }
}

impl axum::handler::Handler<(), Server> for Handler {
    type Future = Answer;

    fn call(self, request: Request, server: Server) -> Answer {
        (self.0)(request, server)
    }
}

/// The route of these handlers, which have one path, with its description.
macro_rules! routes {
    ($($handler:ident),+) => {{
        $(let $handler = $crate::http::handler::Handler::of($handler);)+
        utoipa_axum::routes!($($handler),+)
    }};
}
pub(super) use routes;

//! Handlers for the router, all of one type.
//!
//! A handler's type contains its future's, and for each such type the compiler proves in every layer of axum that it is
//! `Send`, down to the last await. Type erasure needs one proof and saves a quarter of the compile time.

use std::{future::Future, pin::Pin};

use axum::{extract::Request, response::Response};

use super::Server;

type Answer = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A type-erased handler.
#[derive(Clone, Copy)]
pub(super) struct Handler(&'static (dyn Fn(Request, Server) -> Answer + Send + Sync));

impl Handler {
    /// For a function, which has no size, so the leak holds no memory.
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

/// The route of handlers that share one path, with its description.
macro_rules! routes {
    ($($handler:ident),+) => {{
        $(let $handler = $crate::http::handler::Handler::of($handler);)+
        utoipa_axum::routes!($($handler),+)
    }};
}
pub(super) use routes;

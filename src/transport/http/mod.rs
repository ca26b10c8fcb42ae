//! HTTP/1.1: decisions as JSON, health pages and metrics.

//! The variables of rules by xDS.

use super::variable::Effect::Meaningless;
use super::variable::ReferenceVariable;
use super::variable::ValueKind::{Decimal, Duration, Flag, Map, Text, Whole};

const ONLY_XDS: super::variable::Effect =
    Meaningless("only with CONFIG_TYPE=GRPC_XDS_SOTW, which is refused");

pub(super) static XDS: [ReferenceVariable; 15] = [
    ReferenceVariable::own("CONFIG_GRPC_XDS_NODE_ID", Text, "default", ONLY_XDS),
    ReferenceVariable::own("CONFIG_GRPC_XDS_NODE_METADATA", Text, "", ONLY_XDS),
    ReferenceVariable::own("CONFIG_GRPC_XDS_SERVER_URL", Text, "localhost:18000", ONLY_XDS),
    ReferenceVariable::own("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", Duration, "3s", ONLY_XDS),
    ReferenceVariable::own("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", Map, "", ONLY_XDS).secret(),
    ReferenceVariable::own("CONFIG_GRPC_XDS_SERVER_USE_TLS", Flag, "false", ONLY_XDS),
    ReferenceVariable::own("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", Text, "", ONLY_XDS),
    ReferenceVariable::own("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", Text, "", ONLY_XDS),
    ReferenceVariable::own("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", Text, "", ONLY_XDS),
    ReferenceVariable::own("CONFIG_GRPC_XDS_SERVER_TLS_SAN", Text, "", ONLY_XDS),
    ReferenceVariable::own("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", Duration, "10s", ONLY_XDS),
    ReferenceVariable::own("XDS_CLIENT_BACKOFF_MAX_INTERVAL", Duration, "60s", ONLY_XDS),
    ReferenceVariable::own("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", Decimal, "0.5", ONLY_XDS),
    ReferenceVariable::own("XDS_CLIENT_BACKOFF_JITTER", Flag, "true", ONLY_XDS),
    ReferenceVariable::own("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", Whole, "", ONLY_XDS),
];

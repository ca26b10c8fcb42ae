//! The variables of rules by xDS. They are read with `CONFIG_TYPE=GRPC_XDS_SOTW` only.

use super::variable::Effect::{Meaningless, Sets};
use super::variable::ReferenceVariable;
use super::variable::ValueKind::{Decimal, Duration, Flag, Map, Text, Whole};

pub(super) static XDS: [ReferenceVariable; 15] = [
    ReferenceVariable::own("CONFIG_GRPC_XDS_NODE_ID", Text, "default", Sets(&["rules.xds.node_id"])),
    ReferenceVariable::own("CONFIG_GRPC_XDS_NODE_METADATA", Text, "", Sets(&["rules.xds.node_metadata"])),
    ReferenceVariable::own(
        "CONFIG_GRPC_XDS_SERVER_URL",
        Text,
        "localhost:18000",
        Sets(&["rules.xds.address"]),
    )
    .but("a value without a port ends the start"),
    ReferenceVariable::own(
        "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL",
        Duration,
        "3s",
        Meaningless("it has no effect there either"),
    ),
    ReferenceVariable::own(
        "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
        Map,
        "",
        Sets(&["rules.xds.headers"]),
    )
    .but("headers that gRPC sets itself are refused")
    .secret(),
    ReferenceVariable::own("CONFIG_GRPC_XDS_SERVER_USE_TLS", Flag, "false", Sets(&["rules.xds.tls.enabled"])),
    ReferenceVariable::own("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", Text, "", Sets(&["rules.xds.tls.cert_file"]))
        .but(FILES),
    ReferenceVariable::own("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", Text, "", Sets(&["rules.xds.tls.key_file"]))
        .but(FILES),
    ReferenceVariable::own("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", Text, "", Sets(&["rules.xds.tls.ca_file"]))
        .but("only this file is trusted, not the system's authorities as well; read again when it changes"),
    ReferenceVariable::own("CONFIG_GRPC_XDS_SERVER_TLS_SAN", Text, "", Sets(&["rules.xds.tls.server_name"])),
    ReferenceVariable::own(
        "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL",
        Duration,
        "10s",
        Sets(&["rules.xds.backoff.initial"]),
    )
    .but("`1s` unless set"),
    ReferenceVariable::own(
        "XDS_CLIENT_BACKOFF_MAX_INTERVAL",
        Duration,
        "60s",
        Sets(&["rules.xds.backoff.max"]),
    )
    .but("`30s` unless this or the initial interval is set"),
    ReferenceVariable::own(
        "XDS_CLIENT_BACKOFF_RANDOM_FACTOR",
        Decimal,
        "0.5",
        Meaningless("pauses double; there they never grow with the default"),
    ),
    ReferenceVariable::own("XDS_CLIENT_BACKOFF_JITTER", Flag, "true", Sets(&["rules.xds.backoff.jitter"])),
    ReferenceVariable::own(
        "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES",
        Whole,
        "",
        Sets(&["rules.xds.max_message_bytes"]),
    )
    .but("32 MiB unless set, not 4 MiB"),
];

const FILES: &str = "one of the two alone is not used, as there; read again when it changes";

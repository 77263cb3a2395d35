"""All settings, in one place. Every variable has a default that works; a bad value stops the start.

Reads the environment once, through `clusterstate.environment`. docs/settings.md lists the
variables for people; a test compares the two.
"""

import secrets
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import structlog

from clusterstate import environment
from clusterstate.local import places
from clusterstate.processes import private_files
from clusterstate.telemetry import logs, slowness

BASE_DIR = Path(__file__).resolve().parent.parent

# --- Where things are -----------------------------------------------------------------------------

STATE_DIR = (
    Path(environment.text("STOWAGE_STATE", str(places.default_state(BASE_DIR))))
    .expanduser()
    .absolute()
)
HOST = environment.text("STOWAGE_HOST", "127.0.0.1")  # the https server's; http is loopback only
HTTPS_PORT = environment.integer("STOWAGE_HTTPS_PORT", 8443, at_least=1, at_most=65535)
# Under which address programs elsewhere reach the https server; `manage.py up` finds it out.
ADVERTISE_ADDRESS = environment.address("STOWAGE_ADVERTISE_ADDRESS")
HTTP_PORT = environment.integer("STOWAGE_HTTP_PORT", 8080, at_least=1, at_most=65535)

# --- Behaviour ------------------------------------------------------------------------------------

DEBUG = environment.flag("STOWAGE_DEBUG", default=False)
# kube-apiserver's limit for a request body is 3 MiB; bulk creation of a PodList needs more.
MAX_BODY_BYTES = environment.integer(
    "STOWAGE_MAX_BODY", 32 << 20, at_least=1 << 10, at_most=1 << 30
)
# Sizes are seen to before a body is read (``api.serving``); Django's own limit, of 2.5 MiB for
# everything, is out of the way.
DATA_UPLOAD_MAX_MEMORY_SIZE = MAX_BODY_BYTES
# What a web process holds at most of bodies being read or answered and of answers being sent.
MAX_HELD_BYTES = environment.integer(
    "STOWAGE_MAX_HELD", 8 * MAX_BODY_BYTES, at_least=2 * MAX_BODY_BYTES, at_most=64 << 30
)
MAX_CONNECTIONS = environment.integer("STOWAGE_MAX_CONNECTIONS", 4096, at_least=16, at_most=65536)
HISTORY_SECONDS = environment.integer(
    "STOWAGE_HISTORY_SECONDS", 3600, at_least=10, at_most=30 * 24 * 3600
)
DECISION_SECONDS = environment.integer(
    "STOWAGE_DECISION_SECONDS", 24 * 3600, at_least=60, at_most=30 * 24 * 3600
)
# Which share of the decisions is made again from rows while the machine is idle; 0: none.
CHECKED_DECISIONS = environment.number("STOWAGE_AUDIT_DECISIONS", 0.01, at_least=0, at_most=1)
# How long the past can be read after the change log has forgotten it; 0: not at all.
PAST_HOURS = environment.integer("STOWAGE_PAST_HOURS", 168, at_least=0, at_most=10 * 365 * 24)
# Where webhooks may send to: host names, addresses, networks, or "public"; without any: nowhere.
WEBHOOK_TARGETS = environment.words("STOWAGE_WEBHOOK_TARGETS", "")
# Pods of these sizes are counted by `/metrics`: how many more of each would find room.
HEADROOM_SHAPES = environment.pod_shapes(
    "STOWAGE_HEADROOM_SHAPES",
    "small=cpu:500m memory:1Gi, medium=cpu:2 memory:8Gi, large=cpu:8 memory:32Gi",
)
WEB_THREADS = environment.integer("STOWAGE_WEB_THREADS", 4, at_least=1, at_most=64)
WEB_WORKERS = environment.integer("STOWAGE_WEB_WORKERS", 1, at_least=1, at_most=64)
# How large this machine is; a small one has fewer processes, and PostgreSQL less memory.
SIZE = environment.size("STOWAGE_SIZE")
# How many schedulers work at a time; more processes than that stand by.
ACTIVE_SCHEDULERS = environment.integer("STOWAGE_ACTIVE_SCHEDULERS", 1, at_least=1, at_most=8)
# Scheduler processes that `manage.py up` runs: those that work, and others that can take over.
SCHEDULERS = environment.integer(
    "STOWAGE_SCHEDULERS", 1 if SIZE == "small" else 2, at_least=1, at_most=8
)
# Advisors that `manage.py up` runs: they answer questions about the cluster, such as what-if.
ADVISORS = environment.integer("STOWAGE_ADVISORS", 1, at_least=0, at_most=16)
# Where the console is served: `here`, in the web processes; or at the address of its own process
# (`unix:/path`, `http://host:port`). Empty: `manage.py up` starts one, others serve it here.
CONSOLE = environment.console("STOWAGE_CONSOLE") or ("here" if SIZE == "small" else "")
# Switches of admission (`clusterstate.admission.request.AdmissionSettings`), in camel case.
ADMISSION = environment.switches("STOWAGE_ADMISSION")
# What this process calls itself in logs and in pg_stat_activity; the supervisor sets it.
PROCESS = environment.text("STOWAGE_PROCESS", "manage")

# To which address this process hands the console's requests over; empty: to none.
CONSOLE_AT = CONSOLE if PROCESS in {"web", "http", "https"} and CONSOLE != "here" else ""


def _secret_key() -> str:
    """Return the signing key: the variable, else the state directory's, else one for this process.

    `manage.py up` writes the state directory's once, so a key for one process only ever serves
    commands that sign nothing.
    """
    if configured := environment.text("STOWAGE_SECRET_KEY"):
        return configured
    try:
        return private_files.read(STATE_DIR / "secret-key") or secrets.token_urlsafe(48)
    except OSError:
        return secrets.token_urlsafe(48)


SECRET_KEY = _secret_key()
CSRF_TRUSTED_ORIGINS = environment.words("STOWAGE_TRUSTED_ORIGINS", "")
# By which names browsers may call the pages; unset: those of the certificate of `manage.py up`, and
# of the origins above.
ALLOWED_HOSTS = environment.hosts(
    "STOWAGE_ALLOWED_HOSTS", HOST, ADVERTISE_ADDRESS, CSRF_TRUSTED_ORIGINS
)
# Whose X-Forwarded-For and X-Forwarded-Proto say who asks, and by which scheme.
TRUSTED_PROXIES = environment.networks("STOWAGE_TRUSTED_PROXIES")
METRICS_OPEN = environment.flag("STOWAGE_METRICS_OPEN", default=False)
# Traces of pods for OpenTelemetry (`clusterstate.telemetry.tracing`); the OTEL_* variables say
# where to.
TRACES = environment.flag("STOWAGE_TRACES", default=False)

# --- Evictions and the life of nodes --------------------------------------------------------------

# requiredDuringSchedulingRequiredDuringExecution: how long a pod stays on a node that no longer
# matches, and how many such pods leave in a second (0: as many as budgets allow).
REQUIRED_DURING_EXECUTION_GRACE_SECONDS = environment.number(
    "STOWAGE_REQUIRED_DURING_EXECUTION_GRACE", 0, at_least=0, at_most=365 * 86400
)
REQUIRED_DURING_EXECUTION_RATE = environment.number(
    "STOWAGE_REQUIRED_DURING_EXECUTION_RATE", 50, at_least=0, at_most=1e6
)
# How many database connections evict at a time when more than a batch is due.
TIMER_CONNECTIONS = environment.integer("STOWAGE_TIMER_CONNECTIONS", 2, at_least=1, at_most=16)
# kube-controller-manager: --node-monitor-grace-period, --node-monitor-period, --node-eviction-rate,
# --secondary-node-eviction-rate, --unhealthy-zone-threshold, --large-cluster-size-threshold.
NODE_MONITOR_GRACE_SECONDS = environment.number(
    "STOWAGE_NODE_MONITOR_GRACE", 40, at_least=1, at_most=86400
)
NODE_MONITOR_PERIOD_SECONDS = environment.number(
    "STOWAGE_NODE_MONITOR_PERIOD", 2, at_least=0.1, at_most=600
)
# The seed that breaks ties between nodes in every batch, so that plans predict them; 0: random.
SCHEDULER_SEED = environment.integer("STOWAGE_SCHEDULER_SEED", 0, at_least=0, at_most=2**63 - 1)
# The share of the pods of a zone, of a namespace, of an owner, beyond which evictions wait for
# approval, and how many pods that must be.
BRAKE_ZONE_PERCENT = environment.number("STOWAGE_BRAKE_ZONE", 100, at_least=0, at_most=100)
BRAKE_NAMESPACE_PERCENT = environment.number(
    "STOWAGE_BRAKE_NAMESPACE", 100, at_least=0, at_most=100
)
BRAKE_OWNER_PERCENT = environment.number("STOWAGE_BRAKE_OWNER", 100, at_least=0, at_most=100)
BRAKE_LEAST = environment.integer("STOWAGE_BRAKE_LEAST", 10, at_least=1, at_most=10**6)
# How many pods a second are evicted in each zone, whatever the cause (0: as many as may go).
ZONE_EVICTION_RATE = environment.number("STOWAGE_ZONE_EVICTION_RATE", 0, at_least=0, at_most=1e6)
NODE_EVICTION_RATE = environment.number("STOWAGE_NODE_EVICTION_RATE", 0.1, at_least=0, at_most=1e6)
SECONDARY_NODE_EVICTION_RATE = environment.number(
    "STOWAGE_SECONDARY_NODE_EVICTION_RATE", 0.01, at_least=0, at_most=1e6
)
UNHEALTHY_ZONE_THRESHOLD = environment.number(
    "STOWAGE_UNHEALTHY_ZONE_THRESHOLD", 0.55, at_least=0, at_most=1
)
LARGE_CLUSTER_SIZE = environment.integer(
    "STOWAGE_LARGE_CLUSTER_SIZE", 50, at_least=0, at_most=10**6
)
# Whether something outside initialises new nodes; until then they are tainted `uninitialized`.
EXTERNAL_CLOUD_PROVIDER = environment.flag("STOWAGE_EXTERNAL_CLOUD_PROVIDER", default=False)
# Which controllers work, of workloads, endpoints, volumes (kube-controller-manager: --controllers).
CONTROLLERS = environment.chosen(
    "STOWAGE_CONTROLLERS",
    (
        "deployment",
        "replicaset",
        "replicationcontroller",
        "daemonset",
        "statefulset",
        "job",
        "cronjob",
        "horizontalpodautoscaler",
        "endpointslice",
        "endpointslicemirroring",
        "endpoint",
        "persistentvolume-binder",
        "persistentvolume-expander",
        "attachdetach",
        "ephemeral-volume",
        "hollow-csi",
        "resourceclaim",
        "device-taint-eviction",
    ),
)
# How long after its grace period a pod is removed by force when its node's agent does not.
FORCED_DELETION_MARGIN_SECONDS = environment.number(
    "STOWAGE_FORCED_DELETION_MARGIN", 30, at_least=0, at_most=86400
)
# How long a node must be missed before its pods are collected, and how many finished
# pods are kept (kube-controller-manager: --terminated-pod-gc-threshold; 0: all).
POD_GC_QUARANTINE_SECONDS = 20.0
TERMINATED_POD_THRESHOLD = environment.integer(
    "STOWAGE_TERMINATED_POD_THRESHOLD", 12500, at_least=0, at_most=10**9
)
# How long the pressure that a node reported must be away before its condition ends (kubelet:
# evictionPressureTransitionPeriod).
PRESSURE_TRANSITION_SECONDS = environment.number(
    "STOWAGE_PRESSURE_TRANSITION", 300, at_least=0, at_most=86400
)

# The audit log (docs/audit.md): a policy file, a file of JSON lines, and how long and how many
# lines the table keeps (0 hours: none). When the log can take no more, lines are dropped and
# counted, or requests are refused.
AUDIT_POLICY_FILE = environment.text("STOWAGE_AUDIT_POLICY_FILE")
AUDIT_LOG_FILE = environment.text("STOWAGE_AUDIT_LOG_FILE")
AUDIT_FILE_BYTES = (
    environment.integer("STOWAGE_AUDIT_FILE_SIZE", 100, at_least=1, at_most=1 << 20) << 20
)
AUDIT_FILES = environment.integer("STOWAGE_AUDIT_FILES", 10, at_least=0, at_most=10_000)
AUDIT_FILE_DAYS = environment.number("STOWAGE_AUDIT_FILE_DAYS", 30, at_least=0.001, at_most=3650)
AUDIT_KEEP_HOURS = environment.number("STOWAGE_AUDIT_KEEP_HOURS", 168, at_least=0, at_most=87_600)
AUDIT_KEEP_LINES = environment.integer(
    "STOWAGE_AUDIT_KEEP_LINES", 1_000_000, at_least=1000, at_most=10**10
)
AUDIT_WHEN_FULL = environment.choice("STOWAGE_AUDIT_WHEN_FULL", "drop", ("drop", "refuse"))

# --- Django ---------------------------------------------------------------------------------------

# What only people in a browser and callers of the API need. The background processes leave it out:
# a third less memory, and half the time to start.
_WEB_APPS = [
    "unfold",
    "django.contrib.admin",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "axes",
    "rest_framework",
    "api",
]
INSTALLED_APPS = [
    *([] if PROCESS in {"scheduler", "worker", "timers", "advisor", "beat"} else _WEB_APPS),
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "clusterstate",
    "scheduling",
]
ROOT_URLCONF = "api.urls"
MIGRATION_MODULES = {"clusterstate": "migrations"}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-us"
FORMAT_MODULE_PATH = "clusterstate.formats"  # how the admin writes times

# Sessions, messages and the rest serve people in a browser. The API authenticates by token, keeps
# no session and is asked thousands of times a second, so its paths skip the browser's chain.
MIDDLEWARE = ["clusterstate.middleware.BrowserOnly"]
BROWSER_PATHS = ("/admin", "/console", "/static/")
BROWSER_MIDDLEWARE = [
    "clusterstate.middleware.SecureTransport",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "clusterstate.middleware.ContentSecurityPolicy",
    "django.middleware.gzip.GZipMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "clusterstate.middleware.IdleSession",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "clusterstate.middleware.ActsForSignedIn",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "axes.middleware.AxesMiddleware",
]
SILENCED_SYSTEM_CHECKS = [
    # They look for their middleware in MIDDLEWARE; it is in BROWSER_MIDDLEWARE, and
    # clusterstate.E001 checks that it stays there.
    "admin.E408",
    "admin.E409",
    "admin.E410",
    "axes.W002",
    "security.W001",
    "security.W002",
    "security.W003",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        # Before the templates of the packages, some of which are replaced.
        "DIRS": [BASE_DIR / "clusterstate" / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "api.server.health.in_pages",
            ],
            "libraries": {"console": "api.console.page.formatting"},
        },
    }
]
STATIC_URL = "/static/"
# Before the files of the packages: the admin takes Alpine's build without eval from here.
STATICFILES_DIRS = [BASE_DIR / "clusterstate" / "static"]
WHITENOISE_USE_FINDERS = True  # files straight from the packages: nothing to collect
WHITENOISE_AUTOREFRESH = DEBUG

# --- Who may log in -------------------------------------------------------------------------------

AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
    "clusterstate.admin.roles.RolesBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 10},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = 0.25  # hours
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]  # one address cannot lock others out
AXES_RESET_ON_SUCCESS = True
# A failed sign-in is kept with its form: passwords are left out always, and these fields. A code
# that was mistyped is nearly one that works.
AXES_SENSITIVE_PARAMETERS = [
    *("username", "ip_address", "code", "csrfmiddlewaretoken"),
    *("token", "access_token", "id_token", "authorization", "bearer", "secret"),
]
AXES_VERBOSE = False
AXES_LOCKOUT_CALLABLE = "api.console.page.layout.locked_out"
AXES_ENABLE_ADMIN = False  # the console has a screen of its own
AXES_CLIENT_IP_CALLABLE = "clusterstate.middleware.client_address"
# Accounts of the company, by OpenID Connect (`api.console.people.company`); off without an issuer.
OIDC_ISSUER = environment.issuer("STOWAGE_OIDC_ISSUER")
OIDC_CLIENT_ID = environment.text("STOWAGE_OIDC_CLIENT_ID", "stowage")
OIDC_CLIENT_SECRET = environment.text("STOWAGE_OIDC_CLIENT_SECRET")
OIDC_SCOPES = ["openid", *environment.words("STOWAGE_OIDC_SCOPES", "email,profile")]
OIDC_TITLE = environment.text("STOWAGE_OIDC_TITLE", "the company's account")
# kube-apiserver: --oidc-username-claim, --oidc-groups-claim, --oidc-username-prefix and -groups-.
OIDC_NAME_CLAIM = environment.text("STOWAGE_OIDC_NAME_CLAIM", "sub")
OIDC_GROUPS_CLAIM = environment.text("STOWAGE_OIDC_GROUPS_CLAIM", "groups")
OIDC_PREFIX = environment.text("STOWAGE_OIDC_PREFIX", "oidc:")
OIDC_PREFIX = "" if OIDC_PREFIX == "-" else OIDC_PREFIX
# Secure cookies and HSTS are for https alone: `clusterstate.middleware.SecureTransport`.
HSTS_SECONDS = environment.integer("STOWAGE_HSTS", 31536000, at_least=0, at_most=10**9)
SESSION_IDLE_SECONDS = environment.integer(
    "STOWAGE_SESSION_IDLE", 3600, at_least=60, at_most=30 * 86400
)
SESSION_COOKIE_AGE = max(12 * 3600, SESSION_IDLE_SECONDS)
SESSION_ENGINE = "clusterstate.browser_sessions"
SESSION_SERIALIZER = "django.contrib.sessions.serializers.JSONSerializer"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
LOGIN_REDIRECT_URL = "/admin/"  # of the admin's own sign-in; the console's knows where to go
SESSION_COOKIE_NAME = "stowage-session"
CSRF_COOKIE_NAME = "stowage-csrf"
CSRF_FAILURE_VIEW = "api.console.page.layout.no_csrf"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"

# --- PostgreSQL -----------------------------------------------------------------------------------

_postgres = environment.postgres("DATABASE_URL", places.postgres_url(STATE_DIR))

# Processes of the service, as against commands that a person runs, such as a migration.
SERVES = PROCESS in {
    *("web", "http", "https", "console"),
    *("scheduler", "timers", "worker", "advisor", "beat"),
}
# Processes with loops, which may hold locks between transactions: their sessions carry a sign of
# the process, and are ended when it is stopped or lost (`clusterstate.database.sessions`).
SESSION_SIGN = "stowage"
SESSION_NAME = f"{SESSION_SIGN}-{PROCESS}" + (
    f"-{slowness.sign()}" if PROCESS in {"scheduler", "timers", "worker", "advisor"} else ""
)
# No wait without an end. No session may hold up others by falling silent in a transaction; a
# statement of a command may take long. A client that vanished is found by the connection itself.
_ANSWERS_REQUESTS = PROCESS in {"web", "http", "https", "console"}
_LIMITS = {
    "idle_in_transaction_session_timeout": "4s" if SERVES else "60s",
    "lock_timeout": "8s" if SERVES else "300s",
    "statement_timeout": "18s" if _ANSWERS_REQUESTS else "60s" if SERVES else "3600s",
    "transaction_timeout": "120s" if SERVES else "7200s",
    "client_connection_check_interval": "1s",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10s",
}
# What the client waits for an answer at most: longer than the server would take to give up by
# itself. A server that does not answer at all is given up within 16 s
# (`clusterstate.database.postgres`); this limit is for a single process of the server that is stuck
# while others answer. Requests wait for it no longer than for a frozen host. The scheduler's
# statements are short, and all pods wait for them; loading has its own limit.
_IS_WAITED_FOR = _ANSWERS_REQUESTS or PROCESS == "scheduler"
DATABASE_ANSWER_SECONDS = (20.0 if _IS_WAITED_FOR else 70.0) if SERVES else 7300.0


def _database(url: dict[str, str], **defaults: str) -> dict[str, Any]:
    """Return Django's settings of a database; what its URL says counts before ``defaults``."""
    options = {
        "connect_timeout": "8",
        "keepalives_idle": "5",
        "keepalives_interval": "2",
        "keepalives_count": "3",
        "tcp_user_timeout": "10000",
        **defaults,
        **url,
    }
    limits = [f"-c {name}={value}" for name, value in _LIMITS.items()]
    options["options"] = " ".join([*limits, url.get("options", "")]).strip()
    return {
        "ENGINE": "clusterstate.database.postgres",
        "NAME": options.pop("dbname"),
        "USER": options.pop("user", ""),
        "PASSWORD": options.pop("password", ""),
        "HOST": options.pop("host", ""),
        "PORT": options.pop("port", ""),
        "CONN_MAX_AGE": None,  # each thread keeps its own connection
        "OPTIONS": {
            "application_name": SESSION_NAME,
            # Parameters travel apart from the statement, so the server can keep its plan.
            "server_side_binding": True,
            "prepare_threshold": 2,
            **options,
        },
    }


# Where the embedded server's data lies, None with another server; room there is looked after.
DATABASE_FOLDER = (
    STATE_DIR if _postgres.get("host") == str(places.socket_directories(STATE_DIR)[0]) else None
)
DISK_RESERVE_BYTES = (
    environment.integer("STOWAGE_DISK_RESERVE", 64, at_least=0, at_most=1 << 20) << 20
)
# Of several hosts, the one that writes.
_several = {"target_session_attrs": "read-write"} if "," in _postgres.get("host", "") else {}
DATABASES = {
    "default": {
        **_database(_postgres, **_several),
        "CONN_HEALTH_CHECKS": True,  # a restarted server costs no failed request
    }
}
# Reads that may be a little behind go to a replica of the same database, if there is one
# (`clusterstate.change_log.replica`).
READS_FROM_REPLICA = bool(environment.text("REPLICA_DATABASE_URL", ""))
REPLICA_LAG_SECONDS = environment.integer("STOWAGE_REPLICA_LAG", 5, at_least=1, at_most=3600)
if READS_FROM_REPLICA:
    DATABASES["replica"] = _database(
        environment.postgres("REPLICA_DATABASE_URL", ""),
        connect_timeout="3",
        target_session_attrs="standby",
    )

# --- Redis and Celery -----------------------------------------------------------------------------

REDIS_URL = environment.url("REDIS_URL", places.redis_url(STATE_DIR), ("redis", "rediss", "unix"))


def _broker(url: str) -> str:
    """Return the URL in kombu's spelling, which differs from redis-py's for unix sockets."""
    parts = urlsplit(url)
    if parts.scheme != "unix":
        return url
    database = parse_qs(parts.query).get("db", ["0"])[0]
    return f"redis+socket://{parts.path}?virtual_host={database}"


# Nothing is cached through Django, whose caches pickle; what is remembered is remembered in memory.
CACHES = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
CELERY_BROKER_URL = _broker(REDIS_URL)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # a broker that was away for an hour is found again
# Also when it answers with an error, such as a replica that only reads; `processes.messages`.
CELERY_BROKER_CHANNEL_ERROR_RETRY = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    # What a killed worker held is delivered again after this time. The loops have done its work
    # long before; no task is scheduled by ETA, so nothing is delivered twice by waiting.
    "visibility_timeout": 300,
    # A broker that is frozen is given up, and asked again; tasks are hints, and no request waits.
    "socket_timeout": 5.0,
    "socket_connect_timeout": 2.0,
    "socket_keepalive": True,
    "health_check_interval": 25,
}
CELERY_TASK_PUBLISH_RETRY = False  # no request waits for the broker; the loops work without tasks
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_RESULT_SERIALIZER = "json"
CELERY_RESULT_ACCEPT_CONTENT = ["json"]
CELERY_TASK_DEFAULT_QUEUE = "celery"
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# Otherwise standard error is a thing that logs what it is given, and each line that the log hands
# to it would be dropped.
CELERY_WORKER_REDIRECT_STDOUTS = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False  # nothing asks, and it is a session of Redis each
CELERY_WORKER_CONSUMER = "scheduling.processes.messages:Messages"
# In memory: the schedule is in the code, and a file of it would be a pickle.
CELERY_BEAT_SCHEDULER = "celery.beat:Scheduler"
CELERY_TIMEZONE = "UTC"
# Without it Celery closes the database connection before and after every task.
CELERY_DB_REUSE_MAX = 1_000_000

# --- REST framework -------------------------------------------------------------------------------

REST_FRAMEWORK: dict[str, object] = {  # how the API uses each of them: see the package api
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "api.access.auth.BearerAuthentication",
        "api.access.auth.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["api.access.permissions.RoleBased"],
    "DEFAULT_THROTTLE_CLASSES": [],
    "DEFAULT_PARSER_CLASSES": [
        "api.forms.parsers.JSONParser",
        "api.forms.parsers.YAMLParser",
        "api.forms.parsers.ProtobufParser",
    ],
    "DEFAULT_RENDERER_CLASSES": [
        "api.forms.renderers.JSONRenderer",
        "api.forms.renderers.YAMLRenderer",
        "api.forms.renderers.ProtobufRenderer",
        "api.forms.renderers.PageRenderer",
    ],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "api.forms.negotiation.Negotiation",
    "DEFAULT_VERSIONING_CLASS": "api.forms.versioning.PathVersioning",
    "DEFAULT_PAGINATION_CLASS": "api.forms.pagination.ContinuePagination",
    "EXCEPTION_HANDLER": "api.forms.errors.handle",
    "UNAUTHENTICATED_USER": None,
}

# --- Logging: event plus fields, to standard error ------------------------------------------------

# Commands set WARNING, where nobody asks for another level (`manage.py`).
LOG_LEVEL = environment.choice("STOWAGE_LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR"))
LOG_FORMAT = environment.choice("STOWAGE_LOG_FORMAT", "text", ("text", "json"))
_shared_processors: list[structlog.typing.Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.ExtraAdder(),
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]
structlog.configure(
    processors=[
        structlog.stdlib.filter_by_level,
        structlog.stdlib.add_logger_name,
        *_shared_processors,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
    ],
    logger_factory=structlog.stdlib.LoggerFactory(),
    wrapper_class=logs.Logger,
    cache_logger_on_first_use=True,
)
_NO_NEWS = "ERROR" if LOG_LEVEL == "ERROR" else "WARNING"
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "events": {
            "()": "structlog.stdlib.ProcessorFormatter",
            "foreign_pre_chain": [structlog.stdlib.add_logger_name, *_shared_processors],
            "processors": [
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *(
                    [
                        structlog.processors.format_exc_info,
                        structlog.processors.JSONRenderer(),
                    ]
                    if LOG_FORMAT == "json"
                    else [
                        structlog.processors.format_exc_info,
                        logs.render_text,
                    ]
                ),
                logs.blanked,
            ],
        }
    },
    "handlers": {
        "stderr": {"class": "clusterstate.telemetry.logs.StandardError", "formatter": "events"}
    },
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    "loggers": {
        "django.request": {"level": "ERROR"},  # a 404 is an answer, not news
        # The answer says what to do; any stranger could fill the log.
        "django.security.DisallowedHost": {"level": "CRITICAL"},
        "celery": {"level": _NO_NEWS},  # else a line for each task sent, received and done
        "axes": {"level": _NO_NEWS},
    },
}

# --- Admin ----------------------------------------------------------------------------------------

UNFOLD = {
    "SITE_TITLE": "Stowage",
    "SITE_HEADER": "Stowage",
    "SITE_SYMBOL": "deployed_code",
    "SITE_URL": None,
    "SHOW_HISTORY": True,
    "SHOW_VIEW_ON_SITE": False,
    "SHOW_BACK_BUTTON": True,
    "DASHBOARD_CALLBACK": "clusterstate.admin.dashboard.context",
    "SIDEBAR": {"navigation": "clusterstate.admin.navigation.sidebar"},
    "STYLES": [f"{STATIC_URL}clusterstate/admin.css"],
    "SCRIPTS": [f"{STATIC_URL}clusterstate/admin.js"],
}

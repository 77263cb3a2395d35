"""The grace periods and rates of the node lifecycle, from the settings."""

from django.conf import settings

from scheduling.controllers.nodes.lifecycle_rules import Settings


def lifecycle_settings() -> Settings:
    """Return the configured grace periods, rates and thresholds."""
    return Settings(
        grace_period_seconds=settings.NODE_MONITOR_GRACE_SECONDS,
        eviction_rate=settings.NODE_EVICTION_RATE,
        secondary_eviction_rate=settings.SECONDARY_NODE_EVICTION_RATE,
        unhealthy_zone_threshold=settings.UNHEALTHY_ZONE_THRESHOLD,
        large_cluster_size=settings.LARGE_CLUSTER_SIZE,
        pass_seconds=settings.NODE_MONITOR_PERIOD_SECONDS,
    )

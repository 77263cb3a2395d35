"""PyPI's kubernetes_asyncio: many requests at once, a watch, the dynamic client."""

import asyncio

import pytest
from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.client.exceptions import ApiException
from kubernetes_asyncio.dynamic import DynamicClient

pytestmark = [pytest.mark.slow, pytest.mark.db]


def run(cluster, work):
    """Run a coroutine with a client, and end when it ends."""

    async def inside():
        async with await config.new_client_from_config(str(cluster.kubeconfig)) as api:
            await asyncio.wait_for(work(api), 50)

    asyncio.run(inside())


def test_pods_are_made_at_once_and_a_watch_tells_when_they_run(cluster):
    names = {f"many-{number}" for number in range(12)}

    async def work(api):
        core = client.CoreV1Api(api)
        start = (await core.list_namespaced_pod(cluster.namespace)).metadata.resource_version
        made = await asyncio.gather(
            *(
                core.create_namespaced_pod(cluster.namespace, cluster.pod(name, app="many"))
                for name in sorted(names)
            )
        )
        assert {one.metadata.name for one in made} == names
        running = set()
        async with watch.Watch().stream(
            core.list_namespaced_pod, cluster.namespace, label_selector="app=many",
            resource_version=start, timeout_seconds=40,
        ) as stream:  # fmt: skip
            async for event in stream:
                if event["object"].status.phase == "Running":
                    assert event["object"].spec.node_name == cluster.node
                    running.add(event["object"].metadata.name)
                if running == names:
                    break
        page = await core.list_namespaced_pod(cluster.namespace, label_selector="app=many", limit=5)
        assert len(page.items) == 5
        assert page.metadata.remaining_item_count is None or page.metadata._continue
        rest = await core.list_namespaced_pod(
            cluster.namespace, label_selector="app=many", _continue=page.metadata._continue
        )
        assert {one.metadata.name for one in page.items + rest.items} == names
        await core.delete_collection_namespaced_pod(
            cluster.namespace, label_selector="app=many", grace_period_seconds=0
        )
        left = await core.list_namespaced_pod(cluster.namespace, label_selector="app=many")
        assert left.items == []

    run(cluster, work)


def test_objects_are_patched_and_conflicts_told(cluster):
    async def work(api):
        core = client.CoreV1Api(api)
        settings = {"metadata": {"name": "settings"}, "data": {"color": "blue"}}
        first = await core.create_namespaced_config_map(cluster.namespace, settings)
        changed = await core.patch_namespaced_config_map(
            "settings", cluster.namespace, {"data": {"size": "7", "color": None}}
        )
        assert changed.data == {"size": "7"}
        with pytest.raises(ApiException) as stale:
            await core.replace_namespaced_config_map("settings", cluster.namespace, first)
        assert stale.value.status == 409
        replaced = await core.patch_namespaced_config_map(
            "settings", cluster.namespace,
            [{"op": "replace", "path": "/data/size", "value": "8"}],
        )  # fmt: skip
        assert replaced.data == {"size": "8"}
        await core.delete_namespaced_config_map("settings", cluster.namespace)

    run(cluster, work)


def test_the_dynamic_client_works_on_deployments(cluster):
    async def work(api):
        dynamic = await DynamicClient(api)
        deployments = await dynamic.resources.get(api_version="apps/v1", kind="Deployment")
        made = await deployments.create(
            body=cluster.deployment("dynamic", 2), namespace=cluster.namespace
        )
        async for event in deployments.watch(
            namespace=cluster.namespace, field_selector="metadata.name=dynamic", timeout=40
        ):
            if (event["object"].status or {}).get("availableReplicas") == 2:
                break
        found = await deployments.get(name="dynamic", namespace=cluster.namespace)
        assert found.metadata.uid == made.metadata.uid
        assert found.status.readyReplicas == 2
        await deployments.delete(
            name="dynamic", namespace=cluster.namespace, body={"propagationPolicy": "Background"}
        )

    run(cluster, work)

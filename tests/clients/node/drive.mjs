// Drives npm's @kubernetes/client-node: node drive.mjs KUBECONFIG NAMESPACE POD-AS-JSON
// Each step prints a line of JSON; the test compares them.
import * as k8s from '@kubernetes/client-node';

const [, , kubeconfig, namespace, manifest] = process.argv;
const config = new k8s.KubeConfig();
config.loadFromFile(kubeconfig);
const core = config.makeApiClient(k8s.CoreV1Api);
const objects = k8s.KubernetesObjectApi.makeApiClient(config);
const tell = (step, what) => console.log(JSON.stringify({ step, ...what }));
const labelSelector = 'app=node';

// An informer lists, then watches; it tells of the pod until it is gone.
const seen = [];
const informer = k8s.makeInformer(
  config,
  `/api/v1/namespaces/${namespace}/pods`,
  () => core.listNamespacedPod({ namespace, labelSelector }),
  labelSelector,
);
const running = new Promise((resolve) => {
  for (const event of ['add', 'update']) { // several changes may come as one
    informer.on(event, (pod) => pod.status.phase === 'Running' && resolve(pod));
  }
});
const gone = new Promise((resolve) => informer.on('delete', resolve));
informer.on('add', (pod) => seen.push(pod.metadata.name));
informer.on('error', (error) => { throw error; });
await informer.start();

const made = await core.createNamespacedPod({ namespace, body: JSON.parse(manifest) });
tell('created', { name: made.metadata.name, phase: made.status.phase });
const pod = await running;
tell('running', { node: pod.spec.nodeName, seen });

const patched = await core.patchNamespacedPod(
  { namespace, name: made.metadata.name, body: [{ op: 'add', path: '/metadata/labels/color', value: 'blue' }] },
  k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.JsonPatch),
);
tell('patched', { color: patched.metadata.labels.color });

const settings = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'node', namespace } };
await objects.create({ ...settings, data: { a: '1' } });
const merged = await objects.patch({ ...settings, data: { b: '2' } }, undefined, undefined,
  'drive', true, k8s.PatchStrategy.ServerSideApply);
const listed = await objects.list('v1', 'ConfigMap', namespace);
tell('applied', { data: merged.data, names: listed.items.map((one) => one.metadata.name).sort() });
await objects.delete(settings);
const missing = await objects.read(settings).then(() => 0, (error) => error.code);
tell('deleted', { missing });

const review = await config.makeApiClient(k8s.AuthorizationV1Api).createSelfSubjectAccessReview({
  body: { spec: { resourceAttributes: { verb: 'list', resource: 'pods', namespace } } },
});
tell('asked', { allowed: review.status.allowed });

await core.deleteNamespacedPod({ namespace, name: made.metadata.name, gracePeriodSeconds: 0 });
tell('gone', { name: (await gone).metadata.name });
await informer.stop();
process.exit(0);

"""What becomes of every field of every kind: acted upon, kept for others, warned of, or refused.

Nothing is accepted and ignored: a field that a client sets is in exactly one of these places, and
``test_field_table`` compares them with the generated types, so that a new field has to choose. The
table is read by type and field, since a pod's spec is the same in a pod and in ten templates:

``ACTS``
    the service decides or does something by it.
``AGENTS``
    it is kept for the agents of nodes, for proxies and for programs. The control plane of
    Kubernetes does not act upon it either.
``REPORTED``
    part of a status: written by whoever reports it, read by others.
``WHOLE``
    it is a part of something that is warned of as a whole: of a kind with ``not_done``, or of a
    field in `silent_fields`. The types to which nothing else leads need no line here.
``REFUSED``
    a client that sets it is told that it cannot.
`silent_fields`
    Kubernetes would act upon it, and nothing here does. Whoever sets it gets a Warning
    and docs/fields.md names it.
"""

from typing import Final

_ACTS: Final = """\
ContainerRestartRule: action
VolumeMount: bindMountOptions
NodeStatus: declaredFeatures
PodGroup: apiVersion kind metadata spec
GangSchedulingPolicy: minCount
PodGroupSchedulingConstraints: topology
PodGroupSchedulingPolicy: basic gang
TopologyConstraint: key
PodGroupSpec: disruptionMode priority priorityClassName schedulingConstraints
  schedulingPolicy preemptionPolicy
DisruptionMode: all single
SchedulingV1Alpha3PodGroup: apiVersion kind metadata spec
SchedulingV1Alpha3GangSchedulingPolicy: minCount
SchedulingV1Alpha3PodGroupSchedulingConstraints: topology
SchedulingV1Alpha3PodGroupSchedulingPolicy: basic gang
SchedulingV1Alpha3TopologyConstraint: key
SchedulingV1Alpha3PodGroupSpec: disruptionMode priority priorityClassName schedulingConstraints
  schedulingPolicy preemptionPolicy
SchedulingV1Alpha3DisruptionMode: all single
SchedulingV1Alpha2PodGroup: apiVersion kind metadata spec
SchedulingV1Alpha2GangSchedulingPolicy: minCount
SchedulingV1Alpha2PodGroupSchedulingConstraints: topology
SchedulingV1Alpha2PodGroupSchedulingPolicy: basic gang
SchedulingV1Alpha2TopologyConstraint: key
SchedulingV1Alpha2PodGroupSpec: disruptionMode priority priorityClassName schedulingConstraints
  schedulingPolicy
PodSchedulingGroup: podGroupName
CSIDriver: apiVersion kind metadata spec
CSIDriverSpec: attachRequired preventPodSchedulingIfMissing storageCapacity
CSINode: apiVersion kind metadata spec
CSINodeDriver: allocatable name
CSINodeSpec: drivers
CSIPersistentVolumeSource: driver volumeHandle
CSIStorageCapacity: apiVersion capacity kind maximumVolumeSize metadata nodeTopology
  storageClassName
EphemeralVolumeSource: volumeClaimTemplate
PersistentVolume: apiVersion kind metadata spec status
PersistentVolumeClaim: apiVersion kind metadata spec status
PersistentVolumeClaimSpec: accessModes resources selector storageClassName volumeAttributesClassName
  volumeMode volumeName
PersistentVolumeClaimTemplate: metadata spec
PersistentVolumeClaimVolumeSource: claimName
PersistentVolumeSpec: accessModes awsElasticBlockStore azureDisk azureFile capacity cinder claimRef
  csi
  gcePersistentDisk nodeAffinity persistentVolumeReclaimPolicy portworxVolume storageClassName
  volumeAttributesClassName volumeMode vsphereVolume
Volume: awsElasticBlockStore azureDisk cinder csi ephemeral gcePersistentDisk iscsi
  persistentVolumeClaim rbd
VolumeNodeAffinity: required
VolumeNodeResources: count
VolumeResourceRequirements: requests
CELDeviceSelector: expression
CapacityRequestPolicy: default validRange validValues
CapacityRequestPolicyRange: max min step
CapacityRequirements: requests
Counter: value
CounterSet: counters name
Device: allNodes allowMultipleAllocations attributes bindingConditions bindingFailureConditions
  bindsToNode capacity consumesCounters name nodeName nodeSelector taints
DeviceAttribute: bool bools int ints string strings version versions
DeviceCapacity: requestPolicy value
DeviceClaim: config constraints requests
DeviceClaimConfiguration: requests
DeviceClass: apiVersion kind metadata spec
DeviceClassSpec: config extendedResourceName selectors
DeviceConstraint: distinctAttribute matchAttribute requests
DeviceCounterConsumption: counterSet counters
DeviceRequest: exactly firstAvailable name
DeviceSelector: cel
DeviceSubRequest: allocationMode capacity count deviceClassName name selectors tolerations
DeviceTaint: effect key value
DeviceTaintRule: apiVersion kind metadata spec status
DeviceTaintRuleSpec: deviceSelector taint
DeviceTaintSelector: device driver pool
DeviceToleration: effect key operator tolerationSeconds value
ExactDeviceRequest: adminAccess allocationMode capacity count deviceClassName selectors tolerations
ResourceClaim: apiVersion kind metadata spec status
ResourceClaimSpec: devices
PodResourceClaim: name resourceClaimName resourceClaimTemplateName
ResourceClaimTemplate: apiVersion kind metadata spec
ResourceClaimTemplateSpec: metadata spec
ResourcePool: generation name resourceSliceCount
ResourceSlice: apiVersion kind metadata spec
ResourceSliceSpec: allNodes devices driver nodeName nodeSelector perDeviceNodeSelection pool
  sharedCounters
Affinity: nodeAffinity podAffinity podAntiAffinity
AggregationRule: clusterRoleSelectors
ClusterRole: aggregationRule apiVersion kind metadata rules
ClusterRoleBinding: apiVersion kind metadata roleRef subjects
ConfigMap: apiVersion immutable kind metadata
Container: image name ports resources restartPolicy
ContainerPort: containerPort hostIP hostPort name protocol
ControllerRevision: apiVersion data kind metadata revision
CronJob: apiVersion kind metadata spec status
CronJobSpec: concurrencyPolicy failedJobsHistoryLimit jobTemplate schedule startingDeadlineSeconds
  successfulJobsHistoryLimit suspend timeZone
JobTemplateSpec: metadata spec
DaemonSet: apiVersion kind metadata spec status
DaemonSetSpec: minReadySeconds revisionHistoryLimit selector template updateStrategy
DaemonSetUpdateStrategy: rollingUpdate type
Deployment: apiVersion kind metadata spec status
DeploymentSpec: minReadySeconds paused progressDeadlineSeconds replicas revisionHistoryLimit
  selector strategy template
DeploymentStrategy: rollingUpdate type
Event: action apiVersion count eventTime firstTimestamp involvedObject kind lastTimestamp message
  metadata reason related reportingComponent reportingInstance series source type
EventSeries: count lastObservedTime
EventSource: component host
EventsV1Event: action apiVersion deprecatedCount deprecatedFirstTimestamp deprecatedLastTimestamp
  deprecatedSource eventTime kind metadata note reason regarding related reportingController
  reportingInstance series type
EventsV1EventSeries: count lastObservedTime
CrossVersionObjectReference: apiVersion kind name
AutoscalingV1CrossVersionObjectReference: apiVersion kind name
AutoscalingV1HorizontalPodAutoscaler: apiVersion kind metadata spec status
AutoscalingV1HorizontalPodAutoscalerSpec: maxReplicas minReplicas scaleTargetRef
HorizontalPodAutoscaler: apiVersion kind metadata spec status
HorizontalPodAutoscalerSpec: maxReplicas minReplicas scaleTargetRef
Job: apiVersion kind metadata spec status
JobSpec: activeDeadlineSeconds backoffLimit backoffLimitPerIndex completionMode completions
  managedBy manualSelector maxFailedIndexes parallelism podFailurePolicy podReplacementPolicy
  scheduling selector successPolicy suspend template ttlSecondsAfterFinished
JobSchedulingConfiguration: disruptionMode schedulingConstraints schedulingPolicy
WorkloadPodGroupSchedulingPolicy: basic gang
WorkloadPodGroupGangSchedulingPolicy: minCount
WorkloadPodGroupSchedulingConstraints: topology
WorkloadPodGroupDisruptionMode: all single
PodFailurePolicy: rules
PodFailurePolicyOnExitCodesRequirement: containerName operator values
PodFailurePolicyOnPodConditionsPattern: status type
PodFailurePolicyRule: action onExitCodes onPodConditions
SuccessPolicy: rules
SuccessPolicyRule: succeededCount succeededIndexes
LabelSelector: matchExpressions matchLabels
LabelSelectorRequirement: key operator values
Lease: apiVersion kind metadata spec
LeaseSpec: holderIdentity leaseDurationSeconds renewTime
LimitRange: apiVersion kind metadata spec
LimitRangeItem: default defaultRequest max maxLimitRequestRatio min type
LimitRangeSpec: limits
ManagedFieldsEntry: apiVersion fieldsType fieldsV1 manager operation subresource time
Namespace: apiVersion kind metadata spec status
NamespaceSpec: finalizers
Node: apiVersion kind metadata spec status
NodeAffinity: preferredDuringSchedulingIgnoredDuringExecution
  requiredDuringSchedulingIgnoredDuringExecution requiredDuringSchedulingRequiredDuringExecution
NodeSelector: nodeSelectorTerms
NodeSelectorRequirement: key operator values
NodeSelectorTerm: matchExpressions matchFields
NodeSpec: taints unschedulable
ObjectMeta: annotations creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers
  generateName generation labels managedFields name namespace ownerReferences resourceVersion uid
ObjectReference: apiVersion fieldPath kind name namespace resourceVersion uid
Overhead: podFixed
OwnerReference: apiVersion blockOwnerDeletion controller kind name uid
Pod: apiVersion kind metadata spec status
PodAffinity: preferredDuringSchedulingIgnoredDuringExecution
  requiredDuringSchedulingIgnoredDuringExecution
PodAffinityTerm: labelSelector matchLabelKeys mismatchLabelKeys namespaceSelector namespaces
  topologyKey
PodAntiAffinity: preferredDuringSchedulingIgnoredDuringExecution
  requiredDuringSchedulingIgnoredDuringExecution
PodDisruptionBudget: apiVersion kind metadata spec status
PodDisruptionBudgetSpec: maxUnavailable minAvailable selector unhealthyPodEvictionPolicy
PodSchedulingGate: name
PodSpec: activeDeadlineSeconds affinity containers hostNetwork hostUsers hostname initContainers
  nodeName nodeSelector overhead preemptionPolicy priority priorityClassName resourceClaims
  resources restartPolicy runtimeClassName schedulerName schedulingGates schedulingGroup
  serviceAccount serviceAccountName subdomain terminationGracePeriodSeconds tolerations
  topologySpreadConstraints volumes
PodTemplate: apiVersion kind metadata template
PodTemplateSpec: metadata spec
PolicyRule: apiGroups nonResourceURLs resourceNames resources verbs
PreferredSchedulingTerm: matchExpressions matchFields preference weight
PriorityClass: apiVersion globalDefault kind metadata preemptionPolicy value
ReplicaSet: apiVersion kind metadata spec status
ReplicaSetSpec: minReadySeconds replicas selector template
ReplicationController: apiVersion kind metadata spec status
ReplicationControllerSpec: minReadySeconds replicas selector template
ResourceQuota: apiVersion kind metadata spec status
ResourceQuotaSpec: hard scopeSelector scopes
ResourceRequirements: limits requests
Role: apiVersion kind metadata rules
RoleBinding: apiVersion kind metadata roleRef subjects
RoleRef: apiGroup kind name
RollingUpdateDaemonSet: maxSurge maxUnavailable
RollingUpdateDeployment: maxSurge maxUnavailable
RollingUpdateStatefulSetStrategy: maxUnavailable partition
RuntimeClass: apiVersion kind metadata overhead scheduling
Scheduling: nodeSelector tolerations
ScopeSelector: matchExpressions
ScopedResourceSelectorRequirement: operator scopeName values
Secret: apiVersion immutable kind metadata stringData type
Service: apiVersion kind metadata spec status
ServiceAccount: apiVersion kind metadata
ServicePort: appProtocol name nodePort port protocol targetPort
ServiceSpec: allocateLoadBalancerNodePorts clusterIP clusterIPs externalIPs ipFamilies
  ipFamilyPolicy ports publishNotReadyAddresses selector trafficDistribution type
StatefulSet: apiVersion kind metadata spec status
StatefulSetOrdinals: start
StatefulSetPersistentVolumeClaimRetentionPolicy: whenDeleted whenScaled
StatefulSetSpec: volumeClaimTemplates minReadySeconds ordinals persistentVolumeClaimRetentionPolicy
  podManagementPolicy
  replicas revisionHistoryLimit selector serviceName template updateStrategy
StatefulSetUpdateStrategy: rollingUpdate type
Subject: apiGroup kind name namespace
Taint: effect key timeAdded value
Toleration: effect key operator tolerationSeconds value
TopologySpreadConstraint: labelSelector matchLabelKeys maxSkew minDomains nodeAffinityPolicy
  nodeTaintsPolicy topologyKey whenUnsatisfiable
WeightedPodAffinityTerm: podAffinityTerm weight
"""
_AGENTS: Final = """\
PodGroupSpec: workloadRef
WorkloadReference: templateName workloadName
SchedulingV1Alpha3PodGroupSpec: workloadRef
SchedulingV1Alpha3WorkloadReference: templateName workloadName
SchedulingV1Alpha2PodGroupSpec: podGroupTemplateRef
PodGroupTemplateReference: workload
WorkloadPodGroupTemplateReference: podGroupTemplateName workloadName
AzureFilePersistentVolumeSource: readOnly secretName secretNamespace shareName
CSIDriverSpec: fsGroupPolicy nodeAllocatableUpdatePeriodSeconds podInfoOnMount requiresRepublish
  seLinuxMount serviceAccountTokenInSecrets tokenRequests volumeLifecycleModes
CSINodeDriver: nodeID topologyKeys
CSIPersistentVolumeSource: controllerExpandSecretRef controllerPublishSecretRef fsType
  nodeExpandSecretRef nodePublishSecretRef nodeStageSecretRef readOnly volumeAttributes
CephFSPersistentVolumeSource: monitors path readOnly secretFile secretRef user
CinderPersistentVolumeSource: fsType readOnly secretRef volumeID
FlexPersistentVolumeSource: driver fsType options readOnly secretRef
GlusterfsPersistentVolumeSource: endpoints endpointsNamespace path readOnly
ISCSIPersistentVolumeSource: chapAuthDiscovery chapAuthSession fsType initiatorName iqn
  iscsiInterface
  lun portals readOnly secretRef targetPortal
LocalVolumeSource: fsType path
PersistentVolumeClaimVolumeSource: readOnly
PersistentVolumeSpec: cephfs fc flexVolume flocker glusterfs hostPath iscsi local mountOptions nfs
  photonPersistentDisk quobyte rbd scaleIO storageos
RBDPersistentVolumeSource: fsType image keyring monitors pool readOnly secretRef user
ScaleIOPersistentVolumeSource: fsType gateway protectionDomain readOnly secretRef sslEnabled
  storageMode storagePool system volumeName
SecretReference: name namespace
StorageOSPersistentVolumeSource: fsType readOnly secretRef volumeName volumeNamespace
StorageV1TokenRequest: audience expirationSeconds
TypedLocalObjectReference: apiGroup kind name
TypedObjectReference: apiGroup kind name namespace
VolumeResourceRequirements: limits
DeviceClaimConfiguration: opaque
DeviceClassConfiguration: opaque
OpaqueDeviceConfiguration: driver parameters
DeviceTaint: timeAdded
ResourceRequirements: claims
CoreV1ResourceClaim: name request
AWSElasticBlockStoreVolumeSource: fsType partition readOnly volumeID
AppArmorProfile: localhostProfile type
AzureDiskVolumeSource: cachingMode diskName diskURI fsType kind readOnly
AzureFileVolumeSource: readOnly secretName shareName
CSIVolumeSource: driver fsType nodePublishSecretRef readOnly volumeAttributes
Capabilities: add drop
CephFSVolumeSource: monitors path readOnly secretFile secretRef user
CinderVolumeSource: fsType readOnly secretRef volumeID
ClientIPConfig: timeoutSeconds
ClusterTrustBundleProjection: labelSelector name optional path signerName user
ConfigMap: binaryData data
ConfigMapEnvSource: name optional
ConfigMapKeySelector: key name optional
ConfigMapProjection: items name optional
ConfigMapVolumeSource: defaultMode defaultUser items name optional
Container: args command env envFrom imagePullPolicy lifecycle livenessProbe readinessProbe
  resizePolicy restartPolicyRules securityContext startupProbe stdin stdinOnce
  terminationMessagePath terminationMessagePolicy tty volumeDevices volumeMounts workingDir
ContainerResizePolicy: resourceName restartPolicy
ContainerRestartRule: exitCodes
ContainerRestartRuleOnExitCodes: operator values
DownwardAPIProjection: items
DownwardAPIVolumeFile: fieldRef mode path resourceFieldRef user
DownwardAPIVolumeSource: defaultMode defaultUser items
EmptyDirVolumeSource: medium mode sizeLimit
EnvFromSource: configMapRef prefix secretRef
EnvVar: name value valueFrom
EnvVarSource: configMapKeyRef fieldRef fileKeyRef resourceFieldRef secretKeyRef
ExecAction: command
FCVolumeSource: fsType lun readOnly targetWWNs wwids
FileKeySelector: key optional path volumeName
FlexVolumeSource: driver fsType options readOnly secretRef
FlockerVolumeSource: datasetName datasetUUID
GCEPersistentDiskVolumeSource: fsType partition pdName readOnly
GRPCAction: mode port service
GitRepoVolumeSource: directory repository revision
GlusterfsVolumeSource: endpoints path readOnly
HTTPGetAction: host httpHeaders path port protocol scheme
HTTPHeader: name value
HostAlias: hostnames ip
HostPathVolumeSource: path type
ISCSIVolumeSource: chapAuthDiscovery chapAuthSession fsType initiatorName iqn iscsiInterface lun
  portals readOnly secretRef targetPortal
ImageVolumeSource: pullPolicy reference
KeyToPath: key mode path user
LeaseSpec: acquireTime leaseTransitions
Lifecycle: postStart preStop stopSignal
LifecycleHandler: exec httpGet sleep tcpSocket
LocalObjectReference: name
NFSVolumeSource: path readOnly server
NodePodPreemptionPolicy: disableResizePreemption
NodeSpec: podCIDR podCIDRs podPreemptionPolicy providerID
ObjectFieldSelector: apiVersion fieldPath
ObjectMeta: selfLink
PhotonPersistentDiskVolumeSource: fsType pdID
PodCertificateProjection: certificateChainPath credentialBundlePath keyPath keyType
  maxExpirationSeconds signerName user userAnnotations
PodDNSConfig: nameservers options searches
PodDNSConfigOption: name value
PodOS: name
PodReadinessGate: conditionType
PodSecurityContext: appArmorProfile fsGroup fsGroupChangePolicy runAsGroup runAsNonRoot runAsUser
  seLinuxChangePolicy seLinuxOptions seccompProfile supplementalGroups supplementalGroupsPolicy
  sysctls windowsOptions
PodSpec: dnsConfig dnsPolicy enableServiceLinks hostAliases hostIPC hostPID
  hostnameOverride imagePullSecrets os readinessGates securityContext setHostnameAsFQDN
  shareProcessNamespace
PortworxVolumeSource: fsType readOnly volumeID
PriorityClass: description
Probe: exec failureThreshold grpc httpGet initialDelaySeconds periodSeconds successThreshold
  tcpSocket terminationGracePeriodSeconds timeoutSeconds
ProjectedVolumeSource: defaultMode defaultUser sources
QuobyteVolumeSource: group readOnly registry tenant user volume
RBDVolumeSource: fsType image keyring monitors pool readOnly secretRef user
ResourceFieldSelector: containerName divisor resource
RuntimeClass: handler
SELinuxOptions: level role type user
ScaleIOVolumeSource: fsType gateway protectionDomain readOnly secretRef sslEnabled storageMode
  storagePool system volumeName
SeccompProfile: localhostProfile type
Secret: data
SecretEnvSource: name optional
SecretKeySelector: key name optional
SecretProjection: items name optional
SecretVolumeSource: defaultMode defaultUser items optional secretName
SecurityContext: allowPrivilegeEscalation appArmorProfile capabilities privileged procMount
  readOnlyRootFilesystem runAsGroup runAsNonRoot runAsUser seLinuxOptions seccompProfile
  windowsOptions
ServiceAccount: secrets
ServiceAccountTokenProjection: audience expirationSeconds path user
ServiceSpec: externalName externalTrafficPolicy healthCheckNodePort internalTrafficPolicy
  loadBalancerClass loadBalancerIP loadBalancerSourceRanges sessionAffinity sessionAffinityConfig
SessionAffinityConfig: clientIP
SleepAction: seconds
StorageOSVolumeSource: fsType readOnly secretRef volumeName volumeNamespace
Sysctl: name value
TCPSocketAction: host port
Volume: azureFile cephfs configMap downwardAPI emptyDir fc flexVolume flocker gitRepo glusterfs
  hostPath image name nfs photonPersistentDisk portworxVolume projected quobyte scaleIO secret
  storageos vsphereVolume
VolumeDevice: devicePath name
VolumeMount: mountPath mountPropagation name readOnly recursiveReadOnly subPath
  subPathExpr
VolumeProjection: clusterTrustBundle configMap downwardAPI podCertificate secret
  serviceAccountToken
VsphereVirtualDiskVolumeSource: fsType storagePolicyID storagePolicyName volumePath
WindowsSecurityContextOptions: gmsaCredentialSpec gmsaCredentialSpecName hostProcess runAsUserName
"""
_REPORTED: Final = """\
PodGroup: status
PodGroupStatus: conditions resourceClaimStatuses
PodGroupResourceClaimStatus: name resourceClaimName
SchedulingV1Alpha3PodGroup: status
SchedulingV1Alpha3PodGroupStatus: conditions resourceClaimStatuses
SchedulingV1Alpha3PodGroupResourceClaimStatus: name resourceClaimName
SchedulingV1Alpha2PodGroup: status
SchedulingV1Alpha2PodGroupStatus: conditions resourceClaimStatuses
SchedulingV1Alpha2PodGroupResourceClaimStatus: name resourceClaimName
CSINode: status
DeviceTaintRuleStatus: conditions
AllocatedDeviceStatus: conditions data device driver networkData pool shareID
AllocationResult: allocationTimestamp devices nodeSelector
AttachedVolume: devicePath name
CSINodeStatus: storageHealth
CertificateSigningRequestCondition: lastTransitionTime lastUpdateTime message reason status type
CertificateSigningRequestStatus: certificate conditions
Condition: lastTransitionTime message observedGeneration reason status type
ContainerExtendedResourceRequest: containerName requestName resourceName
ContainerImage: names sizeBytes
ContainerResourceMetricStatus: container current name
ContainerState: running terminated waiting
ContainerStateRunning: startedAt
ContainerStateTerminated: containerID exitCode finishedAt message reason signal startedAt
ContainerStateWaiting: message reason
ContainerStatus: allocatedResources allocatedResourcesStatus containerID image imageID lastState
  name ready resources restartCount started state stopSignal user volumeMounts
ContainerUser: linux
CronJobStatus: active lastScheduleTime lastSuccessfulTime
DaemonEndpoint: Port
DaemonSetCondition: lastTransitionTime message reason status type
DaemonSetStatus: collisionCount conditions currentNumberScheduled desiredNumberScheduled
  numberAvailable numberMisscheduled numberReady numberUnavailable observedGeneration
  updatedNumberScheduled
DeploymentCondition: lastTransitionTime lastUpdateTime message reason status type
DeploymentStatus: availableReplicas collisionCount conditions observedGeneration readyReplicas
  replicas terminatingReplicas unavailableReplicas updatedReplicas
DeviceAllocationConfiguration: opaque requests source
DeviceAllocationResult: config results
DeviceRequestAllocationResult: adminAccess bindingConditions bindingFailureConditions
  consumedCapacity device driver pool request shareID skipNodeOperations tolerations
ExternalMetricStatus: current metric
AutoscalingV1HorizontalPodAutoscalerStatus: currentCPUUtilizationPercentage currentReplicas
  desiredReplicas lastScaleTime observedGeneration
HorizontalPodAutoscalerCondition: lastTransitionTime message observedGeneration reason status type
HorizontalPodAutoscalerStatus: conditions currentMetrics currentReplicas desiredReplicas
  lastScaleTime observedGeneration
HostIP: ip
ImageVolumeStatus: imageRef
IngressLoadBalancerIngress: hostname ip ports
IngressLoadBalancerStatus: ingress
IngressPortStatus: error port protocol
IngressStatus: loadBalancer
JobCondition: lastProbeTime lastTransitionTime message reason status type
JobStatus: active completedIndexes completionTime conditions failed failedIndexes ready startTime
  succeeded terminating uncountedTerminatedPods
LinuxContainerUser: gid supplementalGroups uid
LoadBalancerIngress: hostname ip ipMode ports
LoadBalancerStatus: ingress
MetricStatus: containerResource external object pods resource type
MetricValueStatus: averageUtilization averageValue value
ModifyVolumeStatus: status targetVolumeAttributesClassName
NamespaceCondition: lastTransitionTime message reason status type
NamespaceStatus: conditions phase
NetworkDeviceData: hardwareAddress interfaceName ips
NodeAddress: address type
NodeAllocatableMappedResources: name quantity
NodeAllocatableOverheadResources: name perContainer perPod
NodeAllocatableResourceClaimStatus: containers mapping overhead resourceClaimName
NodeCondition: lastHeartbeatTime lastTransitionTime message reason status type
NodeConfigStatus: active assigned error lastKnownGood
NodeDaemonEndpoints: kubeletEndpoint
NodeFeatures: supplementalGroupsPolicy
NodeRuntimeHandler: features name
NodeRuntimeHandlerFeatures: recursiveReadOnlyMounts userNamespaces
NodeStatus: addresses allocatable capacity conditions config daemonEndpoints
  features images nodeInfo phase runtimeHandlers volumesAttached volumesInUse
NodeSwapStatus: capacity
NodeSystemInfo: architecture bootID containerRuntimeVersion kernelVersion kubeProxyVersion
  kubeletVersion machineID operatingSystem osImage runningInUserNamespace swap systemUUID
ObjectMetricStatus: current describedObject metric
PersistentVolumeClaimCondition: lastProbeTime lastTransitionTime message reason status type
PersistentVolumeClaimStatus: accessModes allocatedResourceStatuses allocatedResources capacity
  conditions currentVolumeAttributesClassName healthStatus modifyVolumeStatus phase
PersistentVolumeStatus: lastPhaseTransitionTime message phase reason
PodCondition: lastProbeTime lastTransitionTime message observedGeneration reason status type
PodDisruptionBudgetStatus: conditions currentHealthy desiredHealthy disruptedPods
  disruptionsAllowed expectedPods observedGeneration
PodExtendedResourceClaimStatus: requestMappings resourceClaimName
PodIP: ip
PodResourceClaimStatus: name resourceClaimName
PodStatus: allocatedResources conditions containerStatuses ephemeralContainerStatuses
  extendedResourceClaimStatus hostIP hostIPs initContainerStatuses message
  nodeAllocatableResourceClaimStatuses nominatedNodeName observedGeneration phase podIP podIPs
  qosClass reason resize resourceClaimStatuses resources startTime volumeHealth
PodVolumeHealth: healthConditions lastTransitionTime name
PodsMetricStatus: current metric
PortStatus: error port protocol
ReplicaSetCondition: lastTransitionTime message reason status type
ReplicaSetStatus: availableReplicas conditions fullyLabeledReplicas observedGeneration
  readyReplicas replicas terminatingReplicas
ReplicationControllerCondition: lastTransitionTime message reason status type
ReplicationControllerStatus: availableReplicas conditions fullyLabeledReplicas observedGeneration
  readyReplicas replicas
ResourceClaimConsumerReference: apiGroup name resource uid
ResourceClaimStatus: allocation devices reservedFor
ResourceHealth: health message resourceID
ResourceMetricStatus: current name
ResourceQuotaStatus: hard used
ResourceStatus: name resources
ServiceStatus: conditions loadBalancer
StatefulSetCondition: lastTransitionTime message reason status type
StatefulSetStatus: availableReplicas collisionCount conditions currentReplicas currentRevision
  observedGeneration readyReplicas replicas updateRevision updatedReplicas
StorageHealth: healthConditions name
StorageHealthCondition: accessMode lastTransitionTime message reason status volumeMode
UncountedTerminatedPods: failed succeeded
FlowSchemaCondition: lastTransitionTime message reason status type
FlowSchemaStatus: conditions
PriorityLevelConfigurationCondition: lastTransitionTime message reason status type
PriorityLevelConfigurationStatus: conditions
ServiceCIDRStatus: conditions
VolumeAttachmentStatus: attachError attached attachmentMetadata detachError
VolumeError: errorCode message time
VolumeHealthCondition: message reason status
VolumeHealthStatus: healthConditions lastTransitionTime
VolumeMountStatus: mountPath name readOnly recursiveReadOnly volumeStatus
VolumeStatus: image
"""
_WHOLE: Final = """\
SchedulingV1Alpha3PodGroupSpec: resourceClaims
SchedulingV1Alpha2PodGroupSpec: resourceClaims
AutoscalingV1HorizontalPodAutoscalerSpec: targetCPUUtilizationPercentage
HorizontalPodAutoscalerSpec: behavior metrics
NodeConfigSource: configMap
"""
_REFUSED: Final = """\
PodGroupSpec: parentCompositePodGroupName
SchedulingV1Alpha3PodGroupSpec: parentCompositePodGroupName
EphemeralContainer: args command env envFrom image imagePullPolicy lifecycle livenessProbe name
  ports readinessProbe resizePolicy resources restartPolicy restartPolicyRules securityContext
  startupProbe stdin stdinOnce targetContainerName terminationMessagePath terminationMessagePolicy
  tty volumeDevices volumeMounts workingDir
PodSpec: ephemeralContainers
"""


def _read(text: str) -> dict[str, frozenset[str]]:
    joined = text.replace("\n  ", " ").splitlines()
    return {
        name: frozenset(fields.split())
        for name, _, fields in (one.partition(":") for one in joined)
    }


ACTS: Final = _read(_ACTS)
AGENTS: Final = _read(_AGENTS)
REPORTED: Final = _read(_REPORTED)
WHOLE: Final = _read(_WHOLE)
REFUSED: Final = _read(_REFUSED)

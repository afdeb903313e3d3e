{{/* What the pods of both components have in common. All take a list of the root and the component. */}}

{{- define "quire.podMetadata" -}}
{{- $root := index . 0 -}}
{{- $values := index $root.Values (index . 1) -}}
{{- with $values.podAnnotations -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{ end -}}
labels:
  {{- include "quire.podLabels" . | nindent 2 }}
  {{- with $values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "quire.podLabels" -}}
{{ include "quire.labels" . }}
serving.quire.dev/role: {{ index . 1 }}
{{- if eq (index . 1) "gateway" }}
# the operator leads to each pod as it speaks: while TLS is turned on or off, there are some of both kinds
serving.quire.dev/gateway-tls: {{ ne (index . 0).Values.gateway.tlsSecretName "" | quote }}
{{- end }}
{{- end -}}

{{- define "quire.podPlace" -}}
{{- $root := index . 0 -}}
{{- $values := index $root.Values (index . 1) -}}
serviceAccountName: {{ include "quire.serviceAccountName" . | quote }}
# of a Service quire-gateway there would be a variable QUIRE_GATEWAY_PORT, which is a setting
enableServiceLinks: false
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml $root.Values.podSecurityContext | nindent 2 }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "quire.selectorLabels" . | nindent 8 }}
{{- end -}}

{{- define "quire.container" -}}
{{- $root := index . 0 -}}
{{- $values := index $root.Values (index . 1) -}}
image: {{ include "quire.image" (list $root $values.image) }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
securityContext:
  {{- toYaml $root.Values.securityContext | nindent 2 }}
resources:
  {{- toYaml $values.resources | nindent 2 }}
terminationMessagePolicy: FallbackToLogsOnError
{{- with $values.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "quire.probes" -}}
# on a node whose processors are taken, a start may last minutes: to kill it would only begin it anew
startupProbe:
  httpGet: {path: /healthz, port: {{ . }}}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 150
livenessProbe:
  httpGet: {path: /healthz, port: {{ . }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: {{ . }}}
  periodSeconds: 2
  timeoutSeconds: 5
{{- end -}}

{{- define "quire.disruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "quire.fullname" (index . 0) }}-{{ index . 1 }}
  namespace: {{ (index . 0).Release.Namespace | quote }}
  labels:
    {{- include "quire.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "quire.selectorLabels" . | nindent 6 }}
{{- end -}}

// The table of built-in kinds: their types, selectable fields and scheme.
package main

import (
	"cmp"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind is one served built-in kind.
type kind struct {
	gv               schema.GroupVersion
	plural, singular string
	namespaced       bool
	short            []string
	obj, list        func() runtime.Object
	fields           func(runtime.Object) fields.Set // selectable fields besides metadata.*
	trigger          string                          // field by which the watch cache indexes watchers
	ttl              uint64
}

// k builds a kind; T and L are the struct types of the object and its list.
func k[T, L any, PT interface {
	*T
	runtime.Object
}, PL interface {
	*L
	runtime.Object
}](gv schema.GroupVersion, plural, singular string, namespaced bool, short ...string) *kind {
	return &kind{gv: gv, plural: plural, singular: singular, namespaced: namespaced, short: short,
		obj: func() runtime.Object { return PT(new(T)) }, list: func() runtime.Object { return PL(new(L)) }}
}

func (k *kind) selectable(trigger string, f func(runtime.Object) fields.Set) *kind {
	k.trigger, k.fields = trigger, f
	return k
}

func kinds() []*kind {
	core, apps := corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion
	none := func(runtime.Object) fields.Set { return nil }
	events := k[corev1.Event, corev1.EventList](core, "events", "event", true, "ev").selectable("", func(o runtime.Object) fields.Set {
		e := o.(*corev1.Event)
		return fields.Set{
			"involvedObject.kind": e.InvolvedObject.Kind, "involvedObject.namespace": e.InvolvedObject.Namespace,
			"involvedObject.name": e.InvolvedObject.Name, "involvedObject.uid": string(e.InvolvedObject.UID),
			"involvedObject.apiVersion": e.InvolvedObject.APIVersion, "involvedObject.resourceVersion": e.InvolvedObject.ResourceVersion,
			"involvedObject.fieldPath": e.InvolvedObject.FieldPath, "reason": e.Reason, "type": e.Type,
			"reportingComponent": e.ReportingController, "source": cmp.Or(e.Source.Component, e.ReportingController),
		}
	})
	events.ttl = 3600
	return []*kind{
		k[corev1.Pod, corev1.PodList](core, "pods", "pod", true, "po").selectable("spec.nodeName", func(o runtime.Object) fields.Set {
			p := o.(*corev1.Pod)
			return fields.Set{
				"spec.nodeName": p.Spec.NodeName, "spec.restartPolicy": string(p.Spec.RestartPolicy),
				"spec.schedulerName": p.Spec.SchedulerName, "spec.serviceAccountName": p.Spec.ServiceAccountName,
				"spec.hostNetwork": fmt.Sprint(p.Spec.HostNetwork), "status.phase": string(p.Status.Phase),
				"status.podIP": p.Status.PodIP, "status.nominatedNodeName": p.Status.NominatedNodeName,
			}
		}),
		k[corev1.ConfigMap, corev1.ConfigMapList](core, "configmaps", "configmap", true, "cm").selectable("metadata.name", nil),
		k[corev1.Secret, corev1.SecretList](core, "secrets", "secret", true).selectable("metadata.name", func(o runtime.Object) fields.Set {
			return fields.Set{"type": string(o.(*corev1.Secret).Type)}
		}),
		k[corev1.Node, corev1.NodeList](core, "nodes", "node", false, "no").selectable("metadata.name", func(o runtime.Object) fields.Set {
			return fields.Set{"spec.unschedulable": fmt.Sprint(o.(*corev1.Node).Spec.Unschedulable)}
		}),
		k[corev1.Namespace, corev1.NamespaceList](core, "namespaces", "namespace", false, "ns").selectable("", func(o runtime.Object) fields.Set {
			n := o.(*corev1.Namespace)
			return fields.Set{"name": n.Name, "status.phase": string(n.Status.Phase)}
		}),
		k[corev1.Service, corev1.ServiceList](core, "services", "service", true, "svc").selectable("", func(o runtime.Object) fields.Set {
			s := o.(*corev1.Service)
			return fields.Set{"spec.clusterIP": s.Spec.ClusterIP, "spec.type": string(s.Spec.Type)}
		}),
		k[corev1.Endpoints, corev1.EndpointsList](core, "endpoints", "endpoints", true, "ep"),
		k[corev1.ServiceAccount, corev1.ServiceAccountList](core, "serviceaccounts", "serviceaccount", true, "sa"),
		k[corev1.PersistentVolume, corev1.PersistentVolumeList](core, "persistentvolumes", "persistentvolume", false, "pv").selectable("", none),
		k[corev1.PersistentVolumeClaim, corev1.PersistentVolumeClaimList](core, "persistentvolumeclaims", "persistentvolumeclaim", true, "pvc").selectable("", none),
		events,
		k[appsv1.Deployment, appsv1.DeploymentList](apps, "deployments", "deployment", true, "deploy"),
		k[appsv1.ReplicaSet, appsv1.ReplicaSetList](apps, "replicasets", "replicaset", true, "rs").selectable("", func(o runtime.Object) fields.Set {
			return fields.Set{"status.replicas": fmt.Sprint(o.(*appsv1.ReplicaSet).Status.Replicas)}
		}),
		k[appsv1.StatefulSet, appsv1.StatefulSetList](apps, "statefulsets", "statefulset", true, "sts"),
		k[appsv1.DaemonSet, appsv1.DaemonSetList](apps, "daemonsets", "daemonset", true, "ds"),
		k[batchv1.Job, batchv1.JobList](batchv1.SchemeGroupVersion, "jobs", "job", true).selectable("", func(o runtime.Object) fields.Set {
			return fields.Set{"status.successful": fmt.Sprint(o.(*batchv1.Job).Status.Succeeded)}
		}),
		k[coordinationv1.Lease, coordinationv1.LeaseList](coordinationv1.SchemeGroupVersion, "leases", "lease", true),
		k[discoveryv1.EndpointSlice, discoveryv1.EndpointSliceList](discoveryv1.SchemeGroupVersion, "endpointslices", "endpointslice", true),
		k[rbacv1.Role, rbacv1.RoleList](rbacv1.SchemeGroupVersion, "roles", "role", true),
		k[rbacv1.RoleBinding, rbacv1.RoleBindingList](rbacv1.SchemeGroupVersion, "rolebindings", "rolebinding", true),
		k[rbacv1.ClusterRole, rbacv1.ClusterRoleList](rbacv1.SchemeGroupVersion, "clusterroles", "clusterrole", false),
		k[rbacv1.ClusterRoleBinding, rbacv1.ClusterRoleBindingList](rbacv1.SchemeGroupVersion, "clusterrolebindings", "clusterrolebinding", false),
	}
}

// newScheme registers each external type a second time as its own internal
// version, so that the generic registry needs no conversion code.
func newScheme(ks []*kind) *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, coordinationv1.AddToScheme, discoveryv1.AddToScheme,
		authenticationv1.AddToScheme, authorizationv1.AddToScheme, rbacv1.AddToScheme, admissionv1.AddToScheme} {
		must(add(s))
	}
	v1 := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(s, v1)
	s.AddUnversionedTypes(v1, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	internal := func(group string, kinds ...runtime.Object) {
		s.AddKnownTypes(schema.GroupVersion{Group: group, Version: runtime.APIVersionInternal}, kinds...)
	}
	internal(authenticationv1.GroupName, &authenticationv1.TokenReview{}, &authenticationv1.SelfSubjectReview{})
	internal(authorizationv1.GroupName, &authorizationv1.SubjectAccessReview{}, &authorizationv1.LocalSubjectAccessReview{},
		&authorizationv1.SelfSubjectAccessReview{}, &authorizationv1.SelfSubjectRulesReview{})
	for _, kd := range ks {
		gvks, _, err := s.ObjectKinds(kd.obj())
		must(err)
		internal(kd.gv.Group, kd.obj(), kd.list())
		if kd.fields == nil { // the default conversion allows metadata.name and metadata.namespace
			continue
		}
		allowed := kd.fields(kd.obj())
		must(s.AddFieldLabelConversionFunc(gvks[0], func(label, value string) (string, string, error) {
			if _, ok := allowed[label]; ok || label == "metadata.name" || label == "metadata.namespace" {
				return label, value, nil
			}
			return "", "", fmt.Errorf("field label not supported: %s", label)
		}))
	}
	return s
}

// Admission: MutatingAdmissionPolicy alone, and only where a flag asks for it.
package main

import (
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
)

func policyKinds() []*kind {
	gv := admissionv1.SchemeGroupVersion
	return []*kind{
		k[admissionv1.MutatingAdmissionPolicy, admissionv1.MutatingAdmissionPolicyList](gv, "mutatingadmissionpolicies", "mutatingadmissionpolicy", false),
		k[admissionv1.MutatingAdmissionPolicyBinding, admissionv1.MutatingAdmissionPolicyBindingList](gv, "mutatingadmissionpolicybindings", "mutatingadmissionpolicybinding", false),
	}
}

// admitByPolicies makes the chain of admission; its clients are the server's own.
func admitByPolicies(config *genericapiserver.Config) error {
	client, err := kubernetes.NewForConfig(config.LoopbackClientConfig)
	if err != nil {
		return err
	}
	dynamicClient, err := dynamic.NewForConfig(config.LoopbackClientConfig)
	if err != nil {
		return err
	}
	plugin, err := mutating.NewPlugin(nil)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	initializer.New(client, dynamicClient, factory, config.Authorization.Authorizer, utilfeature.DefaultFeatureGate,
		config.EffectiveVersion, config.DrainedNotify(), mapper).Initialize(plugin)
	if err := plugin.ValidateInitialization(); err != nil {
		return err
	}
	config.AdmissionControl = admission.NewChainHandler(plugin)
	return config.AddPostStartHook("admission", func(hook genericapiserver.PostStartHookContext) error {
		factory.Start(hook.Done())
		go wait.Until(mapper.Reset, 30*time.Second, hook.Done())
		return nil
	})
}

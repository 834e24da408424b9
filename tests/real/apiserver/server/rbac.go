// Authorization: Kubernetes' own RBAC authorizer (fetched by real-apiserver.sh) over the stored roles and bindings,
// or, without RBAC, three fixed users.
package main

import (
	"context"
	"fmt"
	"io/fs"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/union"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"

	"realapi/defaults" // Kubernetes' default roles and bindings, made at install time
)

// fixedUsers allows everything, except to two user names for 403 tests: "denied" has no access
// to resources and "readonly" only reads.
func fixedUsers(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if u := a.GetUser().GetName(); a.IsResourceRequest() && (u == "denied" || u == "readonly" && !a.IsReadOnly()) {
		return authorizer.DecisionNoOpinion, "", nil
	}
	return authorizer.DecisionAllow, "", nil
}

// authorization installs an authorizer, selected by kube-apiserver's flag value, and returns the rule resolver
// and the function to run once the server answers.
func authorization(c *genericapiserver.Config, mode string) (authorizer.RuleResolver, genericapiserver.PostStartHookFunc, error) {
	switch mode {
	case "Users":
		c.Authorization.Authorizer = authorizer.AuthorizerFunc(fixedUsers)
		return authorizerfactory.NewAlwaysAllowAuthorizer(), nil, nil
	case "RBAC":
	default:
		return nil, nil, fmt.Errorf("--authorization-mode is Users or RBAC, not %q", mode)
	}
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(rest.CopyConfig(c.LoopbackClientConfig), "rbac"))
	if err != nil {
		return nil, nil, err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	known := factory.Rbac().V1()
	byRoles := rbac.New(&rbac.RoleGetter{Lister: known.Roles().Lister()}, &rbac.RoleBindingLister{Lister: known.RoleBindings().Lister()},
		&rbac.ClusterRoleGetter{Lister: known.ClusterRoles().Lister()}, &rbac.ClusterRoleBindingLister{Lister: known.ClusterRoleBindings().Lister()})
	c.Authorization.Authorizer = union.New(authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup), byRoles)
	synced := func(hook genericapiserver.PostStartHookContext) error {
		if err := writeDefaults(hook, client.RbacV1()); err != nil {
			return err
		}
		factory.Start(hook.Done())
		for kind, ok := range factory.WaitForCacheSync(hook.Done()) {
			if !ok {
				return fmt.Errorf("no %v", kind)
			}
		}
		return nil
	}
	return ruleResolver{byRoles}, synced, nil
}

// ruleResolver adapts the authorizer, whose RulesFor takes no context.
type ruleResolver struct{ *rbac.RBACAuthorizer }

func (r ruleResolver) RulesFor(_ context.Context, who user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	return r.RBACAuthorizer.RulesFor(who, namespace)
}

// writeDefaults stores the missing default roles and bindings. No controller aggregates roles, so this does it
// once.
func writeDefaults(ctx context.Context, client rbacclient.RbacV1Interface) error {
	roles, bindings, err := readDefaults()
	if err != nil {
		return err
	}
	for _, role := range roles {
		if _, err := client.ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	for _, binding := range bindings {
		if _, err := client.ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

func readDefaults() (roles []*rbacv1.ClusterRole, bindings []*rbacv1.ClusterRoleBinding, err error) {
	err = fs.WalkDir(defaults.Files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := defaults.Files.ReadFile(path)
		if err != nil {
			return err
		}
		list, err := runtime.Decode(clientscheme.Codecs.UniversalDeserializer(), text)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return eachItem(list, func(o runtime.Object) {
			switch o := o.(type) {
			case *rbacv1.ClusterRole:
				// rights that newer servers than the one of these files grant to everyone
				if o.Name == "system:basic-user" {
					o.Rules = append(o.Rules, rbacv1.PolicyRule{Verbs: []string{"create"}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"selfsubjectreviews"}})
				}
				roles = append(roles, o)
			case *rbacv1.ClusterRoleBinding:
				bindings = append(bindings, o)
			}
		})
	})
	if err == nil {
		aggregate(roles)
	}
	return roles, bindings, err
}

// aggregate fills the aggregated roles; the default ones are nested at most three rounds deep.
func aggregate(roles []*rbacv1.ClusterRole) {
	for range 3 {
		for _, whole := range roles {
			if whole.AggregationRule == nil {
				continue
			}
			whole.Rules = nil
			for _, s := range whole.AggregationRule.ClusterRoleSelectors {
				selector, err := metav1.LabelSelectorAsSelector(&s)
				must(err)
				for _, part := range roles {
					if part != whole && selector.Matches(labels.Set(part.Labels)) {
						whole.Rules = append(whole.Rules, part.Rules...)
					}
				}
			}
		}
	}
}

// eachItem visits the objects of a v1 List, whose items are still encoded when it is read.
func eachItem(list runtime.Object, visit func(runtime.Object)) error {
	whole, ok := list.(*corev1.List)
	if !ok {
		return fmt.Errorf("a %T, not a list", list)
	}
	for _, item := range whole.Items {
		o, err := runtime.Decode(clientscheme.Codecs.UniversalDeserializer(), item.Raw)
		if err != nil {
			return err
		}
		visit(o)
	}
	return nil
}

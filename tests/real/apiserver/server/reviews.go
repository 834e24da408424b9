// The kinds for reviews of tokens and of access: authentication.k8s.io and authorization.k8s.io. They are
// created and answered, never stored. Behaviour and texts follow kube-apiserver.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// review is the REST storage of a kind that can only be created.
type review struct {
	singular   string
	namespaced bool
	empty      func() runtime.Object
	answer     func(context.Context, runtime.Object) (runtime.Object, error)
}

func (r review) New() runtime.Object     { return r.empty() }
func (review) Destroy()                  {}
func (r review) NamespaceScoped() bool   { return r.namespaced }
func (r review) GetSingularName() string { return r.singular }
func (r review) Create(ctx context.Context, o runtime.Object, check rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	if check != nil {
		if err := check(ctx, o.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	return r.answer(ctx, o)
}

func fresh[T any, P interface {
	*T
	runtime.Object
}]() runtime.Object {
	return P(new(T))
}

// reviewGroup holds the storages of a group by resource.
type reviewGroup struct {
	gv       schema.GroupVersion
	storages map[string]rest.Storage
}

func reviews(who authenticator.Request, audiences authenticator.Audiences, may authorizer.Authorizer, rules authorizer.RuleResolver) []reviewGroup {
	return []reviewGroup{
		{authenticationv1.SchemeGroupVersion, map[string]rest.Storage{
			"tokenreviews": review{"tokenreview", false, fresh[authenticationv1.TokenReview], func(ctx context.Context, o runtime.Object) (runtime.Object, error) {
				return reviewToken(ctx, o.(*authenticationv1.TokenReview), who, audiences)
			}},
			"selfsubjectreviews": review{"selfsubjectreview", false, fresh[authenticationv1.SelfSubjectReview], reviewSelf},
		}},
		{authorizationv1.SchemeGroupVersion, map[string]rest.Storage{
			"subjectaccessreviews": review{"subjectaccessreview", false, fresh[authorizationv1.SubjectAccessReview], func(ctx context.Context, o runtime.Object) (runtime.Object, error) {
				r := o.(*authorizationv1.SubjectAccessReview)
				if errs := append(validSubject(r.Spec), validMeta(r.ObjectMeta)...); len(errs) > 0 {
					return nil, apierrors.NewInvalid(authorizationv1.SchemeGroupVersion.WithKind(r.Kind).GroupKind(), "", errs)
				}
				r.Status = decide(ctx, may, subject(r.Spec), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
				return r, nil
			}},
			"localsubjectaccessreviews": review{"localsubjectaccessreview", true, fresh[authorizationv1.LocalSubjectAccessReview], func(ctx context.Context, o runtime.Object) (runtime.Object, error) {
				return reviewLocal(ctx, o.(*authorizationv1.LocalSubjectAccessReview), may)
			}},
			"selfsubjectaccessreviews": review{"selfsubjectaccessreview", false, fresh[authorizationv1.SelfSubjectAccessReview], func(ctx context.Context, o runtime.Object) (runtime.Object, error) {
				r := o.(*authorizationv1.SelfSubjectAccessReview)
				errs := append(validAttributes(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes), validMeta(r.ObjectMeta)...)
				if len(errs) > 0 {
					return nil, apierrors.NewInvalid(authorizationv1.SchemeGroupVersion.WithKind(r.Kind).GroupKind(), "", errs)
				}
				self, ok := request.UserFrom(ctx)
				if !ok {
					return nil, apierrors.NewBadRequest("no user present on request")
				}
				r.Status = decide(ctx, may, self, r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
				return r, nil
			}},
			"selfsubjectrulesreviews": review{"selfsubjectrulesreview", false, fresh[authorizationv1.SelfSubjectRulesReview], func(ctx context.Context, o runtime.Object) (runtime.Object, error) {
				return reviewRules(ctx, o.(*authorizationv1.SelfSubjectRulesReview), rules)
			}},
		}},
	}
}

// --- authentication ----------------------------------------------------------------

func reviewToken(ctx context.Context, r *authenticationv1.TokenReview, who authenticator.Request, own authenticator.Audiences) (runtime.Object, error) {
	if namespace := request.NamespaceValue(ctx); namespace != "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("namespace is not allowed on this type: %v", namespace))
	}
	if r.Spec.Token == "" {
		return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	bare := &http.Request{Header: http.Header{"Authorization": {"Bearer " + r.Spec.Token}}}
	audiences := authenticator.Audiences(r.Spec.Audiences)
	if len(audiences) == 0 {
		audiences = own
	}
	if len(audiences) > 0 {
		bare = bare.WithContext(authenticator.WithAudiences(bare.Context(), audiences))
	}
	found, ok, err := who.AuthenticateRequest(bare)
	r.Status.Authenticated = ok
	if err != nil {
		r.Status.Error = err.Error()
	}
	if found == nil {
		return r, nil
	}
	if len(audiences) > 0 && len(audiences.Intersect(found.Audiences)) == 0 {
		return nil, apierrors.NewInternalError(errors.New("error validating audiences"))
	}
	if found.User != nil {
		r.Status.User = userInfo(found.User)
		r.Status.Audiences = found.Audiences
	}
	return r, nil
}

func reviewSelf(ctx context.Context, _ runtime.Object) (runtime.Object, error) {
	self, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewBadRequest("no user present on request")
	}
	return &authenticationv1.SelfSubjectReview{
		ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Now())},
		Status:     authenticationv1.SelfSubjectReviewStatus{UserInfo: userInfo(self)},
	}, nil
}

func userInfo(u user.Info) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: map[string]authenticationv1.ExtraValue{}}
	for k, v := range u.GetExtra() {
		info.Extra[k] = v
	}
	return info
}

// --- authorization -----------------------------------------------------------------

func subject(spec authorizationv1.SubjectAccessReviewSpec) user.Info {
	info := &user.DefaultInfo{Name: spec.User, UID: spec.UID, Groups: spec.Groups}
	for k, v := range spec.Extra {
		if info.Extra == nil {
			info.Extra = map[string][]string{}
		}
		info.Extra[k] = v
	}
	return info
}

func reviewLocal(ctx context.Context, r *authorizationv1.LocalSubjectAccessReview, may authorizer.Authorizer) (runtime.Object, error) {
	errs := validSubject(r.Spec)
	meta := r.ObjectMeta
	meta.Namespace = ""
	errs = append(errs, validMeta(meta)...)
	if r.Spec.ResourceAttributes != nil && r.Spec.ResourceAttributes.Namespace != r.Namespace {
		errs = append(errs, field.Invalid(field.NewPath("spec.resourceAttributes.namespace"), r.Spec.ResourceAttributes.Namespace, "must match metadata.namespace"))
	}
	if r.Spec.NonResourceAttributes != nil {
		errs = append(errs, field.Invalid(field.NewPath("spec.nonResourceAttributes"), r.Spec.NonResourceAttributes, "disallowed on this kind of request"))
	}
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(authorizationv1.SchemeGroupVersion.WithKind(r.Kind).GroupKind(), "", errs)
	}
	namespace := request.NamespaceValue(ctx)
	if namespace == "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("namespace is required on this type: %v", namespace))
	}
	if namespace != r.Namespace {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("spec.resourceAttributes.namespace must match namespace: %v", namespace))
	}
	r.Status = decide(ctx, may, subject(r.Spec), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	return r, nil
}

func decide(ctx context.Context, may authorizer.Authorizer, who user.Info, on *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
	attrs := attributes(who, on, path)
	decision, reason, err := may.Authorize(ctx, attrs)
	status := authorizationv1.SubjectAccessReviewStatus{Allowed: decision == authorizer.DecisionAllow, Denied: decision == authorizer.DecisionDeny, Reason: reason}
	var faults []string
	if err != nil {
		faults = append(faults, err.Error())
	}
	ignored := func(name string, left int, err error) {
		if err == nil {
			return
		}
		how := "ignored"
		if left > 0 {
			how = "partially ignored"
		}
		faults = append(faults, fmt.Sprintf("spec.resourceAttributes.%s %s due to parse error", name, how))
	}
	ignored("fieldSelector", len(attrs.FieldSelectorRequirements), attrs.FieldSelectorParsingErr)
	ignored("labelSelector", len(attrs.LabelSelectorRequirements), attrs.LabelSelectorParsingErr)
	status.EvaluationError = strings.Join(faults, "; ")
	return status
}

func attributes(who user.Info, on *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) authorizer.AttributesRecord {
	if on == nil {
		return authorizer.AttributesRecord{User: who, Path: path.Path, Verb: path.Verb}
	}
	out := authorizer.AttributesRecord{User: who, Verb: on.Verb, Namespace: on.Namespace, APIGroup: on.Group, APIVersion: on.Version,
		Resource: on.Resource, Subresource: on.Subresource, Name: on.Name, ResourceRequest: true}
	if out.APIVersion == "" {
		out.APIVersion = "*"
	}
	if s := on.LabelSelector; s != nil && s.RawSelector != "" {
		parsed, err := labels.Parse(s.RawSelector)
		if err == nil {
			out.LabelSelectorRequirements, _ = parsed.Requirements()
		}
		out.LabelSelectorParsingErr = err
	} else if s != nil {
		out.LabelSelectorRequirements, out.LabelSelectorParsingErr = labelRequirements(s.Requirements)
	}
	if s := on.FieldSelector; s != nil && s.RawSelector != "" {
		parsed, err := fields.ParseSelector(s.RawSelector)
		if err == nil {
			out.FieldSelectorRequirements = parsed.Requirements()
		}
		out.FieldSelectorParsingErr = err
	} else if s != nil {
		out.FieldSelectorRequirements, out.FieldSelectorParsingErr = fieldRequirements(s.Requirements)
	}
	return out
}

// labelRequirements drops requirements that it does not understand, which makes the request broader, and reports them.
func labelRequirements(given []metav1.LabelSelectorRequirement) (labels.Requirements, error) {
	operators := map[metav1.LabelSelectorOperator]selection.Operator{metav1.LabelSelectorOpIn: selection.In, metav1.LabelSelectorOpNotIn: selection.NotIn,
		metav1.LabelSelectorOpExists: selection.Exists, metav1.LabelSelectorOpDoesNotExist: selection.DoesNotExist}
	var out labels.Requirements
	var errs []error
	for _, g := range given {
		operator, ok := operators[g.Operator]
		if !ok {
			errs = append(errs, fmt.Errorf("%q is not a valid label selector operator", g.Operator))
			continue
		}
		requirement, err := labels.NewRequirement(g.Key, operator, g.Values)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, *requirement)
	}
	return out, utilerrors.NewAggregate(errs)
}

func fieldRequirements(given []metav1.FieldSelectorRequirement) (fields.Requirements, error) {
	operators := map[metav1.FieldSelectorOperator]selection.Operator{metav1.FieldSelectorOpIn: selection.Equals, metav1.FieldSelectorOpNotIn: selection.NotEquals}
	var out fields.Requirements
	var errs []error
	for _, g := range given {
		operator, ok := operators[g.Operator]
		if !ok || len(g.Values) != 1 {
			errs = append(errs, fmt.Errorf("fieldSelectors do not support %v with %d values", g.Operator, len(g.Values)))
			continue
		}
		out = append(out, fields.Requirement{Field: g.Key, Operator: operator, Value: g.Values[0]})
	}
	return out, utilerrors.NewAggregate(errs)
}

func reviewRules(ctx context.Context, r *authorizationv1.SelfSubjectRulesReview, rules authorizer.RuleResolver) (runtime.Object, error) {
	self, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewBadRequest("no user present on request")
	}
	if r.Spec.Namespace == "" {
		return nil, apierrors.NewBadRequest("no namespace on request")
	}
	resources, paths, incomplete, err := rules.RulesFor(ctx, self, r.Spec.Namespace)
	r.Status = authorizationv1.SubjectRulesReviewStatus{ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{}, Incomplete: incomplete}
	for _, rule := range resources {
		r.Status.ResourceRules = append(r.Status.ResourceRules, authorizationv1.ResourceRule{Verbs: rule.GetVerbs(), APIGroups: rule.GetAPIGroups(), Resources: rule.GetResources(), ResourceNames: rule.GetResourceNames()})
	}
	for _, rule := range paths {
		r.Status.NonResourceRules = append(r.Status.NonResourceRules, authorizationv1.NonResourceRule{Verbs: rule.GetVerbs(), NonResourceURLs: rule.GetNonResourceURLs()})
	}
	if err != nil {
		r.Status.EvaluationError = err.Error()
	}
	return r, nil
}

// --- validation --------------------------------------------------------------------

func validMeta(meta metav1.ObjectMeta) field.ErrorList {
	meta.ManagedFields = nil
	if apiequality.Semantic.DeepEqual(metav1.ObjectMeta{}, meta) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), meta, "must be empty")}
}

func validSubject(spec authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	errs := validAttributes(spec.ResourceAttributes, spec.NonResourceAttributes)
	if spec.User == "" && len(spec.Groups) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec").Child("user"), spec.User, "at least one of user or group must be specified"))
	}
	return errs
}

func validAttributes(on *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	switch {
	case on != nil && path != nil:
		errs = append(errs, field.Invalid(spec.Child("nonResourceAttributes"), path, "cannot be specified in combination with resourceAttributes"))
	case on == nil && path == nil:
		errs = append(errs, field.Invalid(spec.Child("resourceAttributes"), path, "exactly one of nonResourceAttributes or resourceAttributes must be specified"))
	}
	if on == nil {
		return errs
	}
	both := "may not specified at the same time"
	if s := on.FieldSelector; s != nil {
		p := spec.Child("resourceAttributes", "fieldSelector")
		if s.RawSelector != "" && len(s.Requirements) > 0 {
			errs = append(errs, field.Invalid(p.Child("rawSelector"), s.RawSelector, both))
		}
		if s.RawSelector == "" && len(s.Requirements) == 0 {
			errs = append(errs, field.Required(p.Child("requirements"), "when fieldSelector is specified, requirements or rawSelector is required"))
		}
	}
	if s := on.LabelSelector; s != nil {
		p := spec.Child("resourceAttributes", "labelSelector")
		if s.RawSelector != "" && len(s.Requirements) > 0 {
			errs = append(errs, field.Invalid(p.Child("rawSelector"), s.RawSelector, both))
		}
		if s.RawSelector == "" && len(s.Requirements) == 0 {
			errs = append(errs, field.Required(p.Child("requirements"), "when labelSelector is specified, requirements or rawSelector is required"))
		}
	}
	return errs
}

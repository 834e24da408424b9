//! Callers that act as other users: whether they may, and what their streams depend on. Whether a caller may do something is decided in `guard`.

use std::sync::Arc;

use http::HeaderMap;

use super::{AuthorizerMode, Denial, Guard, forbidden, is_forwardable};
use crate::auth::caller::{Caller, CallerDenial, CallerRefusal};
use crate::auth::impersonation::{self, ImpersonationError, ImpersonationRequest};
use crate::auth::leases::{Confirmation, Requirement};

impl Guard {
    /// [`Self::impersonating`], with who asked and for whom.
    pub(super) async fn resolve_impersonation(
        &self,
        caller: Caller,
        headers: &HeaderMap,
    ) -> Result<Caller, CallerDenial> {
        let user = Arc::clone(&caller.user);
        let resolved = self.impersonating(caller, headers).await;
        resolved.map_err(|refusal| {
            let request = ImpersonationRequest::from_headers(headers).ok().flatten();
            CallerDenial {
                refusal,
                user: Some(user),
                impersonated: request.map(|request| Arc::new(request.user)),
            }
        })
    }

    /// The caller with the user that its impersonation headers name; the caller itself if there are none. Checks that the impersonation
    /// is allowed, unless upstream does so later.
    async fn impersonating(
        &self,
        caller: Caller,
        headers: &HeaderMap,
    ) -> Result<Caller, CallerRefusal> {
        let is_forwardable = is_forwardable(&caller.credential);
        let request = match ImpersonationRequest::from_headers(headers) {
            Ok(None) => return Ok(caller),
            Ok(Some(request)) => request,
            // Upstream gets the same headers and responds with its own error.
            Err(_) if is_forwardable => return Err(CallerRefusal::Forward),
            Err(ImpersonationError::WithoutUser { message }) => {
                return Err(CallerRefusal::BadRequest { message });
            }
            Err(error @ (ImpersonationError::NotText | ImpersonationError::TooManyParts)) => {
                return Err(CallerRefusal::Failed {
                    message: error.to_string(),
                });
            }
        };
        if self.0.settings.mode == AuthorizerMode::SelfCheck && is_forwardable {
            return Ok(acting_as(caller, request, headers));
        }
        for part in &request.parts {
            let denial = match self.question(&caller, part.clone()) {
                Some(question) => self.decide(&question).await.err(),
                None => Some(Denial::Unasked),
            };
            match denial {
                None => {}
                Some(Denial::Refused(refusal)) => return Err(refusal),
                // Upstream may allow it by the verbs of constrained impersonation, and its error messages mention them.
                Some(Denial::Denied(_) | Denial::Unasked) if is_forwardable => {
                    return Err(CallerRefusal::Forward);
                }
                Some(Denial::Denied(reason)) => return Err(forbidden(&caller, part, reason)),
                // Not forwarded: upstream would not see the impersonator's credential.
                Some(Denial::Unasked) => return Err(forbidden(&caller, part, String::new())),
            }
        }
        Ok(acting_as(caller, request, headers))
    }

    /// Adds each right of an impersonator, if the caller is one.
    pub(super) async fn add_rights_of_impersonator(
        &self,
        caller: &Caller,
        requirements: &mut Vec<(Requirement, Confirmation)>,
    ) -> Result<(), CallerRefusal> {
        let Some(impersonator) = &caller.impersonator else {
            return Ok(());
        };
        let parts = ImpersonationRequest::from_headers(&caller.impersonation)
            .ok()
            .flatten()
            .map_or_else(Vec::new, |one| one.parts);
        let impersonator = Caller {
            user: Arc::clone(impersonator),
            impersonator: None,
            ..caller.clone()
        };
        let mut decisions = Vec::new();
        for part in parts {
            let question = self
                .question(&impersonator, part.clone())
                .ok_or(CallerRefusal::Forward)?;
            match self.decide(&question).await {
                Ok(decision) => decisions.push((question, decision)),
                Err(Denial::Refused(refusal)) => return Err(refusal),
                Err(Denial::Unasked) => return Err(forbidden(&impersonator, &part, String::new())),
                Err(Denial::Denied(reason)) => {
                    return Err(forbidden(&impersonator, &part, reason));
                }
            }
        }
        // Only now is it known whether roles changed meanwhile.
        let rights = decisions.into_iter();
        requirements
            .extend(rights.map(|(question, decision)| self.requirement(question, &decision)));
        Ok(())
    }
}

fn acting_as(caller: Caller, request: ImpersonationRequest, headers: &HeaderMap) -> Caller {
    Caller {
        user: Arc::new(request.user),
        impersonator: Some(caller.user),
        impersonation: Arc::new(impersonation::only(headers)),
        ..caller
    }
}

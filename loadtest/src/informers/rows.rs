//! The informers that are compared: their names, and how their programs are started.

use anyhow::{Context, Result};
use clap::ValueEnum;
use tokio::process::Command;

use super::Compare;
use super::follow::InformerKind;

/// What a store keeps of an object; only rows of one form are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A struct of the kind.
    Typed,
    /// The same without managed fields, as controllers with little memory keep them.
    Bare,
    /// An object of any kind.
    Dynamic,
    Metadata,
}

impl Form {
    pub const ALL: [Self; 4] = [Self::Typed, Self::Bare, Self::Dynamic, Self::Metadata];

    /// The name in `--rows`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Typed => "typed",
            Self::Bare => "bare",
            Self::Dynamic => "dynamic",
            Self::Metadata => "metadata",
        }
    }

    pub const fn title(self) -> &'static str {
        match self {
            Self::Typed => "typed objects",
            Self::Bare => "typed objects without managed fields",
            Self::Dynamic => "dynamic objects",
            Self::Metadata => "metadata only",
        }
    }
}

/// The program of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// client-go, with its flags and a value of GOGC, if not the default.
    ClientGo(&'static [&'static str], Option<&'static str>),
    Own(InformerKind),
}

/// One informer to be measured.
#[derive(Debug, Clone, Copy)]
pub struct InformerRow {
    pub name: &'static str,
    pub form: Form,
    /// How it is started.
    pub program: Program,
}

/// The others are compared with the first row of each form.
pub const ROWS: &[InformerRow] = &[
    go("client-go", Form::Typed, &["--client=typed"]),
    InformerRow {
        name: "client-go-gogc50",
        form: Form::Typed,
        program: Program::ClientGo(&["--client=typed"], Some("50")),
    },
    go(
        "client-go-proto",
        Form::Typed,
        &["--client=typed", "--content-type=protobuf"],
    ),
    own("kube-rs", Form::Typed, InformerKind::KubeRs),
    own("ours", Form::Typed, InformerKind::Typed),
    own("ours-packed", Form::Typed, InformerKind::Packed),
    go(
        "client-go",
        Form::Bare,
        &["--client=typed", "--drop-managed-fields"],
    ),
    own("kube-rs", Form::Bare, InformerKind::KubeRsBare),
    own("ours", Form::Bare, InformerKind::TypedBare),
    own("ours-packed", Form::Bare, InformerKind::PackedBare),
    go("client-go", Form::Dynamic, &["--client=dynamic"]),
    own("kube-rs", Form::Dynamic, InformerKind::KubeRsDynamic),
    own("ours", Form::Dynamic, InformerKind::Raw),
    // Always protobuf: client-go's metadata client asks for it in any case.
    go("client-go", Form::Metadata, &["--client=metadata"]),
    own("kube-rs", Form::Metadata, InformerKind::KubeRsMetadata),
    own("ours", Form::Metadata, InformerKind::Metadata),
];

const fn go(name: &'static str, form: Form, flags: &'static [&'static str]) -> InformerRow {
    InformerRow {
        name,
        form,
        program: Program::ClientGo(flags, None),
    }
}

const fn own(name: &'static str, form: Form, reader: InformerKind) -> InformerRow {
    InformerRow {
        name,
        form,
        program: Program::Own(reader),
    }
}

impl InformerRow {
    /// Form and name, which are unique together.
    pub fn id(&self) -> String {
        format!("{}/{}", self.form.word(), self.name)
    }

    /// Whether the flags select it.
    pub fn is_selected(&self, flags: &Compare) -> bool {
        let id = self.id();
        // A complete name selects that row alone: others may start with it.
        let is_name = |part: &str| ROWS.iter().any(|row| row.id() == part);
        let wants = |part: &String| *part == id || (id.contains(&**part) && !is_name(part));
        flags.rows.is_empty() || flags.rows.iter().any(wants)
    }

    /// Whether its garbage collector can be run on request.
    pub const fn collects(&self) -> bool {
        matches!(self.program, Program::ClientGo(..))
    }

    pub fn command(&self, flags: &Compare) -> Result<Command> {
        let mut command = match self.program {
            Program::ClientGo(of_row, gogc) => {
                let mut command = Command::new(&flags.client_go);
                command
                    .args(["--resource=pods", "--watch-list=on", "--interactive"])
                    .args(["--content-hash=false", "--duration=1h"])
                    .args(of_row);
                if let Some(gogc) = gogc {
                    command.env("GOGC", gogc);
                }
                command
            }
            Program::Own(reader) => {
                let value = reader.to_possible_value().context("a reader's name")?;
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["follow", "--reader", value.get_name()]);
                command
            }
        };
        command.arg("--kubeconfig").arg(&flags.kubeconfig);
        Ok(command)
    }
}
